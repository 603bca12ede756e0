"""Authentication and authorisation: keys, signatures, decisions, and their audit line."""
