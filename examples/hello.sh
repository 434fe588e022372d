echo "hello from the sandbox"
