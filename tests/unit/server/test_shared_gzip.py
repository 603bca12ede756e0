"""Tests that a gzip stream of shared parts is valid for every reader."""

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.server.shared_gzip import HEAD, GzipPart, SharedGzip


@given(st.lists(st.binary(max_size=3_000), max_size=6), st.integers(0, 6))
def test_streams_that_begin_at_different_parts_are_both_whole(contents, first):
    parts = [GzipPart.from_content(content) for content in contents]
    for some, own in ((parts, contents), (parts[first:], contents[first:])):
        stream = SharedGzip()
        packed = HEAD + b"".join(stream.add(part) for part in some) + stream.end()
        assert gzip.decompress(packed) == b"".join(own)


def test_a_part_is_read_as_soon_as_it_came():
    stream, reader = SharedGzip(), zlib.decompressobj(zlib.MAX_WBITS | 16)
    reader.decompress(HEAD)
    for text in (b"data: 1\n\n", b"data: 2\n\n" * 1_000, b""):
        assert reader.decompress(stream.add(GzipPart.from_content(text))) == text
