from services.infer.main import main

main()
