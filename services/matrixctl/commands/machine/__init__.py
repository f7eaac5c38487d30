"""Commands about the machine: its inventory, its wiring, and taking parts out of service."""
