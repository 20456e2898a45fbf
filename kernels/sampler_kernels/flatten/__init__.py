"""From tokens request by request to tokens row by row, so that each emitted token meets its row of logits."""
