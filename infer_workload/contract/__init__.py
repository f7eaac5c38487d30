"""What is asked of CloudMatrix-Infer and what it shows, as documents on the wire."""
