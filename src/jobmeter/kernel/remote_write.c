/* Where the parts of a Prometheus remote-write request lie.
 *
 * https://protobuf.dev/programming-guides/encoding/
 *
 * What is damaged, or encoded in a way that no known sender uses, ends the scan with ODD: the decoder in Python then
 * reads the message or says what is wrong with it.
 */
#include <string.h>

#include "protobuf.h"

enum { SERIES, ROWS, HISTOGRAMS, EXEMPLARS, SYMBOLS, REFERENCES };

typedef struct {
    uint32_t *index;
    int64_t *time;
    uint64_t *value;
    int64_t room;
    int64_t *counts;
} rows;

static uint64_t load_64(const uint8_t *data) {
    uint64_t sum = 0;
    for (int place = 0; place < 8; place++) sum |= (uint64_t)data[place] << (8 * place);
    return sum;
}

static inline int read_sample(const uint8_t *data, const field *part, int64_t series, rows *to) {
    reader inside = {data, part->content, part->end};
    uint64_t value = 0, time = 0;
    field one;
    if (inside.end - inside.at > 10 && data[inside.at] == 0x09 && data[inside.at + 9] == 0x10) {
        /* As all senders write it. */
        value = load_64(data + inside.at + 1);
        inside.at += 10;
        if (read_varint(&inside, &time)) return ODD;
    }
    while (inside.at < inside.end) {
        if (read_field(&inside, &one)) return ODD;
        if (one.tag == 0x09) {
            value = load_64(data + one.content);
        } else if (one.tag == 0x10) {
            reader number = {data, one.content, one.end};
            if (read_varint(&number, &time)) return ODD;
        }
    }
    int64_t row = to->counts[ROWS];
    if (row >= to->room) return NO_ROOM;
    to->index[row] = (uint32_t)series;
    to->value[row] = value;
    memcpy(&to->time[row], &time, sizeof time);
    to->counts[ROWS] = row + 1;
    return READ;
}

/* What nearly all label fields are: of one tag, with a length of one byte. */
static inline void pass_short_fields(reader *from, uint8_t tag) {
    int64_t at = from->at;
    while (from->end - at >= 2 && from->data[at] == tag) {
        const int64_t next = at + 2 + from->data[at + 1];
        if (from->data[at + 1] >= 128 || next > from->end) break;
        at = next;
    }
    from->at = at;
}

/* A series of 1.0: label fields, one after the other, are its name. */
static int read_series_1(const uint8_t *data, const field *part, int64_t *begin, int64_t *end, rows *to) {
    reader inside = {data, part->content, part->end};
    int64_t series = to->counts[SERIES];
    field one;
    *begin = *end = part->content;
    pass_short_fields(&inside, 0x0A);
    *end = inside.at;
    while (inside.at < inside.end) {
        int result = read_field(&inside, &one);
        if (result) return result;
        switch (one.tag) {
        case 0x0A:
            if (one.begin != *end) return ODD;
            *end = one.end;
            break;
        case 0x12:
            result = read_sample(data, &one, series, to);
            if (result) return result;
            break;
        case 0x1A:
            to->counts[EXEMPLARS]++;
            break;
        case 0x22:
            to->counts[HISTOGRAMS]++;
            break;
        }
    }
    to->counts[SERIES] = series + 1;
    return READ;
}

/* counts: int64[6], zeros. name_begin, name_end: int64[series_room]; index, time, value: [rows_room]. */
EXPORTED int64_t jobmeter_remote_write_1(const uint8_t *data, int64_t size, int64_t most, int64_t *name_begin,
                                         int64_t *name_end, int64_t series_room, uint32_t *index, int64_t *time,
                                         uint64_t *value, int64_t rows_room, int64_t *counts) {
    reader body = {data, 0, size};
    rows to = {index, time, value, rows_room, counts};
    field one;
    for (int64_t parts = 0; body.at < size; parts++) {
        if (parts == most || read_field(&body, &one)) return ODD;
        if (one.tag != 0x0A) continue;
        int64_t series = counts[SERIES];
        if (series >= series_room) return NO_ROOM;
        int result = read_series_1(data, &one, name_begin + series, name_end + series, &to);
        if (result) return result;
    }
    return READ;
}

typedef struct {
    uint32_t *refs;
    int64_t room;
    uint32_t highest;
} references;

static int read_references(const uint8_t *data, const field *part, references *to, int64_t *counts) {
    reader inside = {data, part->content, part->end};
    while (inside.at < inside.end) {
        uint64_t number;
        int64_t begin = inside.at, place = counts[REFERENCES];
        if (read_varint(&inside, &number)) return ODD;
        if (number >= UINT32_MAX || inside.at - begin > 5) return ODD;
        if (place >= to->room) return NO_ROOM;
        to->refs[place] = (uint32_t)number;
        if (number > to->highest) to->highest = (uint32_t)number;
        counts[REFERENCES] = place + 1;
    }
    return READ;
}

/* A series of 2.0: one field of references, before everything else, is its name. */
static int read_series_2(const uint8_t *data, const field *part, references *refs, rows *to) {
    reader inside = {data, part->content, part->end};
    int64_t series = to->counts[SERIES];
    field one;
    while (inside.at < inside.end) {
        int result = read_field(&inside, &one);
        if (result) return result;
        switch (one.tag) {
        case 0x08:
            return ODD;
        case 0x0A:
            if (one.begin != part->content) return ODD;
            result = read_references(data, &one, refs, to->counts);
            break;
        case 0x12:
            result = read_sample(data, &one, series, to);
            break;
        case 0x1A:
            to->counts[HISTOGRAMS]++;
            break;
        case 0x22:
            to->counts[EXEMPLARS]++;
            break;
        }
        if (result) return result;
    }
    to->counts[SERIES] = series + 1;
    return READ;
}

/* counts: int64[6], zeros. symbol_begin, symbol_end: int64[symbol_room]; edges: int64[series_room + 1], where the
 * references of each series begin in refs: uint32[refs_room]; index, time, value: [rows_room]. */
EXPORTED int64_t jobmeter_remote_write_2(const uint8_t *data, int64_t size, int64_t most, int64_t *symbol_begin,
                                         int64_t *symbol_end, int64_t symbol_room, int64_t *edges,
                                         int64_t series_room, uint32_t *refs, int64_t refs_room, uint32_t *index,
                                         int64_t *time, uint64_t *value, int64_t rows_room, int64_t *counts) {
    reader body = {data, 0, size};
    rows to = {index, time, value, rows_room, counts};
    references named = {refs, refs_room, 0};
    field one;
    edges[0] = 0;
    for (int64_t parts = 0; body.at < size; parts++) {
        if (parts == most || read_field(&body, &one)) return ODD;
        if (one.tag == 0x22) {
            int64_t symbol = counts[SYMBOLS];
            if (symbol >= symbol_room) return NO_ROOM;
            symbol_begin[symbol] = one.content;
            symbol_end[symbol] = one.end;
            counts[SYMBOLS] = symbol + 1;
        } else if (one.tag == 0x2A) {
            if (counts[SERIES] >= series_room) return NO_ROOM;
            int result = read_series_2(data, &one, &named, &to);
            if (result) return result;
            edges[counts[SERIES]] = counts[REFERENCES];
        }
    }
    return counts[REFERENCES] && named.highest >= counts[SYMBOLS] ? ODD : READ;
}
