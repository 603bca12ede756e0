/* Times and values as the JSON text [[time,value],[time,value]], a list for each line. */
#include "common.h"
#include "digits.h"

/* values is the JSON list of all values, without spaces; the points of line n are those from bounds[n] to bounds[n + 1].
   ends gets where the text of each line ends in out. Gives the length of the text; -1 when values are not so many, or
   when there is no room for it. */
EXPORTED int64_t jobmeter_points(
    const char *values, int64_t size, const int64_t *time, const int64_t *bounds, int64_t lines,
    char *out, int64_t room, int64_t *ends) {
    const char *from = values + 1, *end = values + size - 1;
    char *at = out, *limit = out + room;
    if (size < 2) return -1;
    for (int64_t line = 0; line < lines; line++) {
        if (limit - at < 2) return -1;
        *at++ = '[';
        for (int64_t point = bounds[line]; point < bounds[line + 1]; point++) {
            const char *comma = memchr(from, ',', (size_t)(end - from));
            const char *until = comma ? comma : end;
            if (until == from || limit - at < (until - from) + 26) return -1;
            if (point > bounds[line]) *at++ = ',';
            *at++ = '[';
            at = put_number(at, time[point]);
            *at++ = ',';
            memcpy(at, from, (size_t)(until - from));
            at += until - from;
            *at++ = ']';
            from = comma ? comma + 1 : end;
        }
        *at++ = ']';
        ends[line] = at - out;
    }
    return at - out;
}
