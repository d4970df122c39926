"""From a request to an executable: `request` is what a user asks for, `stages` compiles it."""
