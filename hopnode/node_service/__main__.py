"""`python -m hopnode.node_service` is `hopnode`."""

from hopnode.node_service.cli import main

if __name__ == "__main__":
    main()
