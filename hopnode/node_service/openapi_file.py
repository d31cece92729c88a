"""`python -m hopnode.node_service.openapi_file FILE` writes the OpenAPI document of this version; needs no data folder."""

import json
import sys
from pathlib import Path

from hopnode.node_service.app import build_api
from hopnode.node_service.reference.openapi_document import describe


def document() -> str:
    """The document as it is committed in `docs/openapi.json`."""
    return json.dumps(describe(build_api()), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
