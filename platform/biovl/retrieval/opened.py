"""A published index, opened and searched.

    manifest.json                   kind ``index``; the rest of this text says what is in it
    images.faiss  captions.faiss    ``vectors.VectorIndex``
    images.f16.npy captions.f16.npy the same unit vectors, float16, shape [N, D]
    table.arrow                     ``metadata``: row i is what is known of id i
    lookup/                         ``metadata``: from a figure's id to its row
    thumbnails.bin                  JPEGs end to end; thumbnail_offset, thumbnail_size of the table
    filters/                        ``filters.FilterTable``
    words/                          ``words.Words``; not there if the index was built without

The manifest's ``files`` has for **every** file its size, under its path in the folder, with ``/``:
``{"images.faiss": {"size_bytes": 1048}, "filters/fields.json": {"size_bytes": 312}, …}``.

Its ``inputs`` are the ``model`` (whose fingerprint is ``Index.model_fingerprint``) and the
``corpus`` (whose shards ``Index.image`` reads). Its ``notes`` have at least

    rows        how many figures
    dim         length of a vector
    factories   {"images": "IVF1024,SQfp16", "captions": …}
    settings    {"images": {"image": {"nprobe": 16}, "text": {"nprobe": 64}}, "captions": {…}}:
                for vectors of images or captions (``Over``), for queries made from images or texts
                (``Kind``), what ``tuning.choose`` chose; {} where every vector is compared
    recall      {"images": {"image": 0.991, "text": 0.962}, …}: measured, with these settings
"""
