"""The sandbox actor: the only one that holds machines."""
