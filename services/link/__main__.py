from services.link.main import main

main()
