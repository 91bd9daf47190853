"""What runs an agent that is a Python function, in the machine: Python 3.9 or newer, standard library only."""
