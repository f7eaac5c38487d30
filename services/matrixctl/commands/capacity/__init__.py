"""Commands about room: what would fit, what is kept for whom, and how room is made."""
