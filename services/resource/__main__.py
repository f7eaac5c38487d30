from services.resource.main import main

main()
