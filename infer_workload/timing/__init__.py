"""How long a step takes: pure functions of work, of the die's rates and of what the fabric grants."""
