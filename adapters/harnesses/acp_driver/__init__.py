"""The driver of agents that speak the Agent Client Protocol: carried into the machine as text, and run there beside the agent."""
