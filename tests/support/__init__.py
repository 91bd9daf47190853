"""What tests share: virtual time, a whole world in one process, checks of what must always hold."""
