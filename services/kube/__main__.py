from services.kube.main import main

main()
