"""Python becomes IR: AST virtualisation (one file per construct) and tracing."""
