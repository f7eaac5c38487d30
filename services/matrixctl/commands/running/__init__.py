"""Commands about a running stack as a whole: its clock, and what a report of it needs."""
