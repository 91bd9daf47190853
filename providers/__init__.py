"""What gym-bus calls: models and sandboxes."""
