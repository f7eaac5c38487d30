from services.operator.main import main

main()
