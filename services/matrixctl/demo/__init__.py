"""The main job reported as a story of named steps, each with what must hold at its end."""
