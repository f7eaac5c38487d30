"""Pictures of the console: made of a machine that lives the same life each time, in a browser where only pixels can differ."""
