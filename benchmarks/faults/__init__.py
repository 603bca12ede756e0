"""Jobs with a known fault, real and generated, and how well the diagnosis names it."""
