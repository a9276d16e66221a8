package main

import (
	"context"
	"os"

	"gateway/cmd/gateway/internal/cli"
)

func main() { os.Exit(cli.Main(context.Background())) }
