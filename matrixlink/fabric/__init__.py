"""How fast bytes move: links, planes, flows, the fair shares between them, and what an instance may use."""
