"""Fetches a URL by whatever way out there is, and prints what comes or why nothing does.

    hotcell run --network examples/fetch.py http://example.com/
"""

import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
        print(answer.read().decode().strip())
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {error.reason}")
except OSError as error:
    sys.exit(f"nothing was reached: {error}")
