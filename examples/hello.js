console.log("hello from the sandbox");
