"""The tests: unit, fault, security, end to end; each mirrors the folder it is about."""
