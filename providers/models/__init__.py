"""Models by configuration."""
