/* Reading a protocol-buffers message, field after field, every byte within bounds.
 *
 * https://protobuf.dev/programming-guides/encoding/
 *
 * What is damaged, or encoded in a way that no known sender uses, is ODD: the decoder in Python then reads the message
 * or says what is wrong with it.
 */
#ifndef JOBMETER_KERNEL_PROTOBUF_H
#define JOBMETER_KERNEL_PROTOBUF_H

#include "common.h"

enum { READ = 0, ODD = 1, NO_ROOM = 2 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct {
    const uint8_t *data;
    int64_t at, end;
} reader;

typedef struct {
    uint64_t tag;
    int64_t begin, content, end;
} field;

static inline int read_varint(reader *from, uint64_t *number) {
    uint64_t sum = 0;
    if (from->at < from->end && from->data[from->at] < 128) {
        *number = from->data[from->at++];
        return READ;
    }
    for (int shift = 0; shift < 70; shift += 7) {
        if (from->at >= from->end) return ODD;
        uint64_t byte = from->data[from->at++];
        if (shift == 63 && byte > 1) return ODD;
        sum |= (byte & 127) << shift;
        if (byte < 128) {
            *number = sum;
            return READ;
        }
    }
    return ODD;
}

/* The next field; the reader stands behind it afterwards. */
static inline int read_field(reader *from, field *found) {
    uint64_t size;
    found->begin = from->at;
    if (read_varint(from, &found->tag)) return ODD;
    if (found->tag < 8 || found->tag > UINT32_MAX) return ODD;
    found->content = from->at;
    switch (found->tag & 7) {
    case VARINT:
        if (read_varint(from, &size)) return ODD;
        break;
    case FIXED64:
    case FIXED32:
        size = (found->tag & 7) == FIXED64 ? 8 : 4;
        if ((uint64_t)(from->end - from->at) < size) return ODD;
        from->at += (int64_t)size;
        break;
    case BYTES:
        if (read_varint(from, &size)) return ODD;
        if ((uint64_t)(from->end - from->at) < size) return ODD;
        found->content = from->at;
        from->at += (int64_t)size;
        break;
    default:
        return ODD;
    }
    found->end = from->at;
    return READ;
}

#endif
