"""Commands about the stack as a whole: begun, shown and ended, its clock, and what a report of it needs."""
