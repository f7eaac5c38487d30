"""The main job told as a story of named steps, each with what must hold at its end."""
