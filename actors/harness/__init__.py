"""The harness: sessions, their activations, and the tool calls that agents make."""
