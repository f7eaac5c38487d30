from services.node_agent.main import main

main()
