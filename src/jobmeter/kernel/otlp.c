/* Where the metrics and the data points of an ExportMetricsServiceRequest lie.
 *
 * https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto
 *
 * What is damaged, or encoded in a way that no known sender uses, ends the scan with ODD: the decoder in Python then
 * reads the message or says what is wrong with it. A metric whose data points are not all in the usual form (times, a
 * value, attributes and no more), or that is neither a gauge nor a sum, is told of as a whole.
 */
#include <string.h>

#include "protobuf.h"

enum { FIRST = 0x0A, SECOND = 0x12 };
enum { NAME = 0x0A, UNIT = 0x1A, GAUGE = 0x2A, SUM = 0x3A, HISTOGRAM = 0x4A, EXPONENTIAL = 0x52, SUMMARY = 0x5A };
enum { DATA_POINT = 0x0A, TEMPORALITY = 0x10, MONOTONIC = 0x18 };
enum { START = 0x11, TIME = 0x19, AS_DOUBLE = 0x21, AS_INT = 0x31, ATTRIBUTES = 0x3A };

/* One row of the table of metrics; src/jobmeter/kernel/otlp.py has the same order. */
typedef struct {
    int64_t resource, resource_end, scope, scope_end, name, name_end, unit, unit_end;
    int64_t kind, body, body_end, temporality, monotonic, first, count, plain;
} metric;

typedef struct {
    const uint8_t *data;
    uint8_t *shape;
    metric *metrics;
    int64_t metric_room, metric_count;
    int64_t *own, *own_end;
    int64_t point_room, point_count;
    int64_t most_own;
} scan;

/* The one field FIRST of a message, empty where there is none; ODD where there are several, or the rest is damaged. */
static int head_of(reader from, int64_t *begin, int64_t *end) {
    field found;
    int seen = 0;
    *begin = *end = from.at;
    while (from.at < from.end) {
        if (read_field(&from, &found)) return ODD;
        if (found.tag != FIRST) continue;
        if (seen++) return ODD;
        *begin = found.content;
        *end = found.end;
    }
    return READ;
}

/* Where the attributes of a data point in the usual form begin; -1 for another one. */
static inline int64_t usual(const scan *into, int64_t at, int64_t end) {
    const uint8_t *data = into->data;
    if (end - at >= 27 && data[at] == START) at += 9;
    if (end - at < 18 || data[at] != TIME || (data[at + 9] != AS_DOUBLE && data[at + 9] != AS_INT)) return -1;
    int64_t own = at += 18;
    if (end - own > into->most_own) return -1;
    while (at < end) {
        if (data[at] != ATTRIBUTES || at + 1 >= end) return -1;
        int64_t size = data[at + 1];
        at += 2;
        if (size >= 128) {
            /* Two bytes, the second of which says something: the shortest form, which is the only one of a key. */
            if (at >= end || data[at] >= 128 || data[at] == 0) return -1;
            size = (size & 127) | (int64_t)data[at] << 7;
            at += 1;
        }
        if (size > end - at) return -1;
        at += size;
    }
    return own;
}

/* Leave the times and the value of a data point out of the shape. */
static inline void blank(const scan *into, int64_t begin, int64_t own) {
    if (own - begin >= 27) memset(into->shape + begin + 1, 0, 8);
    memset(into->shape + own - 17, 0, 8);
    memset(into->shape + own - 8, 0, 8);
}

/* The data points of a gauge or a sum. */
static int read_points(scan *into, metric *row) {
    reader from = {into->data, row->body, row->body_end};
    field found;
    while (from.at < from.end) {
        if (read_field(&from, &found)) return ODD;
        if (found.tag == DATA_POINT) {
            int64_t own = row->plain ? usual(into, found.content, found.end) : -1;
            if (own < 0) {
                row->plain = 0;
            } else {
                if (into->point_count >= into->point_room) return ODD;
                into->own[into->point_count] = own;
                into->own_end[into->point_count++] = found.end;
                blank(into, found.content, own);
                row->count++;
            }
        } else if (found.tag == TEMPORALITY || found.tag == MONOTONIC) {
            reader number = {into->data, found.content, found.end};
            uint64_t value;
            if (read_varint(&number, &value)) return ODD;
            /* What is larger is no temporality that anybody knows. */
            if (found.tag == TEMPORALITY) row->temporality = value < 256 ? (int64_t)value : 255;
            else row->monotonic = value != 0;
        }
    }
    return READ;
}

static int read_metric(scan *into, reader from, const metric *of) {
    field found;
    metric row = *of;
    row.name = row.name_end = row.unit = row.unit_end = from.at;
    row.kind = 0;
    while (from.at < from.end) {
        if (read_field(&from, &found)) return ODD;
        switch (found.tag) {
        case NAME:
            row.name = found.content;
            row.name_end = found.end;
            break;
        case UNIT:
            row.unit = found.content;
            row.unit_end = found.end;
            break;
        case GAUGE:
        case SUM:
        case HISTOGRAM:
        case EXPONENTIAL:
        case SUMMARY:
            if (row.kind) return ODD;
            row.kind = (int64_t)found.tag;
            row.body = found.content;
            row.body_end = found.end;
            break;
        default:
            break;
        }
    }
    if (!row.kind) return READ;
    row.temporality = row.monotonic = row.count = 0;
    row.first = into->point_count;
    row.plain = row.kind == GAUGE || row.kind == SUM;
    if (row.plain && read_points(into, &row)) return ODD;
    if (!row.plain) {
        into->point_count = row.first;
        row.count = 0;
    }
    if (into->metric_count >= into->metric_room) return ODD;
    into->metrics[into->metric_count++] = row;
    return READ;
}

static int read_scope(scan *into, reader from, metric *of) {
    field found;
    if (head_of(from, &of->scope, &of->scope_end)) return ODD;
    while (from.at < from.end) {
        if (read_field(&from, &found)) return ODD;
        reader inner = {into->data, found.content, found.end};
        if (found.tag == SECOND && read_metric(into, inner, of)) return ODD;
    }
    return READ;
}

static int read_resource(scan *into, reader from) {
    field found;
    metric of = {0};
    if (head_of(from, &of.resource, &of.resource_end)) return ODD;
    while (from.at < from.end) {
        if (read_field(&from, &found)) return ODD;
        reader inner = {into->data, found.content, found.end};
        if (found.tag == SECOND && read_scope(into, inner, &of)) return ODD;
    }
    return READ;
}

/* shape, of the same size, becomes the data without the times and values of the data points that were found.
 * counts[0] and counts[1] become the numbers of metrics and of data points. */
EXPORTED int64_t jobmeter_otlp_metrics(const char *data, int64_t size, int64_t most_own, uint8_t *shape,
                                       void *metrics, int64_t metric_room, int64_t *own, int64_t *own_end,
                                       int64_t point_room, int64_t *counts) {
    scan into = {(const uint8_t *)data, shape, metrics, metric_room, 0, own, own_end, point_room, 0, most_own};
    memcpy(shape, data, (size_t)size);
    reader from = {into.data, 0, size};
    field found;
    while (from.at < from.end) {
        if (read_field(&from, &found)) return ODD;
        reader inner = {into.data, found.content, found.end};
        if (found.tag == FIRST && read_resource(&into, inner)) return ODD;
    }
    counts[0] = into.metric_count;
    counts[1] = into.point_count;
    return READ;
}
