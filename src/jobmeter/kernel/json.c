/* What a JSON text opens at each depth, counted without reading it into anything. */

#include <string.h>

#include "common.h"

/* Where the string that begins at `at` (behind its quote) ends: behind the closing quote, or `size`. */
static int64_t string_end(const char *data, int64_t at, int64_t size) {
    while (at < size) {
        const char *quote = memchr(data + at, '"', (size_t)(size - at));
        if (quote == NULL) return size;
        int64_t end = quote - data, back = end;
        while (back > at && data[back - 1] == '\\') back--;
        at = end + 1;
        if (((end - back) & 1) == 0) return at;
    }
    return size;
}

/* counts[d]: objects and arrays that begin at depth d, those below the last depth at the last one.
 * Gives the number of commas between values. */
EXPORTED int64_t jobmeter_json_shape(const char *data, int64_t size, int64_t *counts, int64_t depths) {
    int64_t depth = 0, commas = 0, at = 0;
    while (at < size) {
        switch (data[at++]) {
        case '"':
            at = string_end(data, at, size);
            break;
        case '{':
        case '[':
            counts[depth < depths ? depth : depths - 1]++;
            depth++;
            break;
        case '}':
        case ']':
            if (depth > 0) depth--;
            break;
        case ',':
            commas++;
            break;
        }
    }
    return commas;
}
