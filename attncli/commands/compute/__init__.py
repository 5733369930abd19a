"""compute: Q, K, V or embeddings to every stage of attention."""
