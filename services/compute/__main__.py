from services.compute.main import main

main()
