"""What happens when things die, freeze or refuse."""
