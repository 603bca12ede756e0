/* Reading samples that lie in pages: what jobmeter.store.window.pages keeps. */
#include <math.h>
#include <string.h>

#include "common.h"

#define PAGE 64
#define NEVER (-1)

enum Join { MEAN, SUM, MIN, MAX };

/* A page holds up to PAGE samples of one series: a base time, and for each sample its distance from it and its value;
   at least one of them is there. Pages of a series are chained; a series without one has first_page -1. */
struct Pages {
    const int32_t *distance;
    const double *value;
    const int64_t *base;
    const int32_t *next;
    const int32_t *filled;
    const int32_t *first_page;
    const int64_t *since; /* by row: every sample at or after that time is there */
};

struct Place {
    int32_t page;
    int32_t at;
    int32_t filled;
};

static inline int64_t time_at(const struct Pages *pages, int32_t page, int32_t at) {
    return pages->base[page] + pages->distance[(int64_t)page * PAGE + at];
}

/* The first sample of a row at or after a time; page is -1 when there is none. */
static struct Place seek(const struct Pages *pages, int64_t row, int64_t start) {
    struct Place place = {pages->first_page[row], 0, 0};
    while (place.page >= 0) {
        place.filled = pages->filled[place.page];
        if (time_at(pages, place.page, place.filled - 1) >= start) {
            int32_t low = 0, high = place.filled - 1;
            while (low < high) {
                int32_t middle = (low + high) / 2;
                if (time_at(pages, place.page, middle) >= start) high = middle;
                else low = middle + 1;
            }
            place.at = low;
            return place;
        }
        place.page = pages->next[place.page];
    }
    return place;
}

static inline void step_on(const struct Pages *pages, struct Place *place) {
    if (++place->at < place->filled) return;
    place->page = pages->next[place->page];
    place->at = 0;
    if (place->page >= 0) place->filled = pages->filled[place->page];
}

/* How many samples the rows have in [start, end), and how many buckets of a step they make. */
EXPORTED void jobmeter_window_measure(
    const struct Pages *pages, int64_t count, const int64_t *rows, int64_t start, int64_t end, int64_t step,
    int64_t *samples, int64_t *buckets) {
    int64_t found = 0, made = 0;
    for (int64_t series = 0; series < count; series++) {
        int64_t row = rows[series], until = INT64_MIN;
        struct Place place = seek(pages, row, start);
        while (place.page >= 0) {
            int64_t when = time_at(pages, place.page, place.at);
            if (when >= end) break;
            found++;
            if (when >= until) {
                made++;
                until = (floor_divide(when, step) + 1) * step;
            }
            step_on(pages, &place);
        }
    }
    *samples = found;
    *buckets = made;
}

/* The first samples of the rows in [start, end), by their place in rows, then by time: as many as there is room for.
   Those of the first row begin at first instead of start. Gives how many they are. */
EXPORTED int64_t jobmeter_window_read(
    const struct Pages *pages, int64_t count, const int64_t *rows, int64_t first, int64_t start, int64_t end,
    int64_t room, uint32_t *index, int64_t *time, double *value) {
    int64_t at = 0;
    for (int64_t series = 0; series < count && at < room; series++) {
        struct Place place = seek(pages, rows[series], series == 0 ? first : start);
        while (place.page >= 0 && at < room) {
            const int32_t *distance = pages->distance + (int64_t)place.page * PAGE;
            const double *own = pages->value + (int64_t)place.page * PAGE;
            int64_t base = pages->base[place.page], limit = end - base, left = room - at;
            int32_t one = place.at, last = left < place.filled - one ? one + (int32_t)left : place.filled;
            for (; one < last && distance[one] < limit; one++, at++) {
                index[at] = (uint32_t)series;
                time[at] = base + distance[one];
                value[at] = own[one];
            }
            if (one < place.filled) break;
            place.page = pages->next[place.page];
            place.at = 0;
            if (place.page >= 0) place.filled = pages->filled[place.page];
        }
    }
    return at;
}

/* The samples in buckets; the arrays have room for so many. whole has the rows time, count, first_time, last_time and
   elapsed, real has sum, minimum, maximum, first, last and increase. What a counter grew is counted from its reference
   (NEVER: none yet), which moves on. Gives how many buckets there are; -1 where there are more than room of them or
   more than most samples, and then nothing of the arrays and references is of use. */
EXPORTED int64_t jobmeter_window_bucket(
    const struct Pages *pages, int64_t count, const int64_t *rows, int64_t start, int64_t end, int64_t step,
    const uint8_t *counters, int64_t *reference_time, double *reference_value, int64_t most, int64_t room,
    uint32_t *index, int64_t *whole, double *real) {
    int64_t at = -1, samples = 0;
    for (int64_t series = 0; series < count; series++) {
        int64_t row = rows[series], until = INT64_MIN, seen = reference_time[series];
        double last = reference_value[series];
        int counter = counters[series];
        struct Place place = seek(pages, row, start);
        while (place.page >= 0) {
            int64_t when = time_at(pages, place.page, place.at);
            double reading = pages->value[(int64_t)place.page * PAGE + place.at];
            if (when >= end) break;
            if (++samples > most) return -1;
            if (when >= until) {
                int64_t number = floor_divide(when, step);
                if (++at >= room) return -1;
                until = (number + 1) * step;
                index[at] = (uint32_t)series;
                whole[at] = number * step;
                whole[room + at] = 0;
                whole[2 * room + at] = when;
                /* Until the bucket is full this is when its growth began. */
                whole[4 * room + at] = !counter ? 0 : seen == NEVER ? when : seen;
                real[at] = 0;
                real[room + at] = real[2 * room + at] = real[3 * room + at] = reading;
                real[5 * room + at] = 0;
            }
            if (counter && seen != NEVER) real[5 * room + at] += reading < last ? reading : reading - last;
            seen = when;
            last = reading;
            whole[room + at]++;
            whole[3 * room + at] = when;
            real[at] += reading;
            if (reading < real[room + at]) real[room + at] = reading;
            if (reading > real[2 * room + at]) real[2 * room + at] = reading;
            real[4 * room + at] = reading;
            step_on(pages, &place);
        }
        reference_time[series] = seen;
        reference_value[series] = last;
    }
    for (int64_t bucket = 0; bucket <= at; bucket++) {
        if (counters[index[bucket]]) whole[4 * room + bucket] = whole[3 * room + bucket] - whole[4 * room + bucket];
    }
    return at + 1;
}

/* The sum of the samples from a place on that are before a time, whose number is added to *number; the place moves on. */
static double sum_until(const struct Pages *pages, struct Place *place, int64_t until, int64_t *number) {
    double sum = 0;
    while (place->page >= 0) {
        const int32_t *distance = pages->distance + (int64_t)place->page * PAGE;
        const double *value = pages->value + (int64_t)place->page * PAGE;
        int64_t limit = until - pages->base[place->page];
        int32_t at = place->at;
        for (; at < place->filled && distance[at] < limit; at++) sum += value[at];
        *number += at - place->at;
        place->at = at;
        if (at < place->filled) break;
        place->page = pages->next[place->page];
        place->at = 0;
        if (place->page >= 0) place->filled = pages->filled[place->page];
    }
    return sum;
}

/* The means of the rows' samples in buckets of a step, joined by line: line[i] is the line of rows[i], how[line] joins
   its rows (MEAN, SUM, MIN or MAX of their means, in the order of rows). The grid has lines times width cells, width
   being the buckets that meet [start, end). block has room for four numbers a cell, one a line, and one more: cells of
   working memory (two numbers each); then the times and the values of the cells that hold something finite, by line and
   time; then where each line ends among them; then how many samples were read. Gives how many such cells there are;
   -1 where more than most samples would be read, -2 where a row is none or does not hold everything since start. */
EXPORTED int64_t jobmeter_window_lines(
    const struct Pages *pages, int64_t count, const int64_t *rows, const int64_t *line, const uint8_t *how,
    int64_t lines, int64_t start, int64_t end, int64_t step, int64_t most, int64_t *block) {
    int64_t first = floor_divide(start, step), width = floor_divide(end - 1, step) - first + 1, at = 0, read = 0;
    int64_t cells = lines * width, *members = block + cells, *time = block + 2 * cells, *ends = block + 4 * cells;
    double *total = (double *)block, *value = (double *)(block + 3 * cells);
    memset(members, 0, (size_t)cells * sizeof *members);
    for (int64_t series = 0; series < count; series++) {
        if (rows[series] < 0 || pages->since[rows[series]] > start) return -2;
    }
    for (int64_t series = 0; series < count; series++) {
        double *own = total + line[series] * width;
        int64_t *joined = members + line[series] * width;
        uint8_t way = how[line[series]];
        struct Place place = seek(pages, rows[series], start);
        while (place.page >= 0) {
            int64_t when = time_at(pages, place.page, place.at), number = 0;
            if (when >= end) break;
            int64_t bucket = floor_divide(when, step), until = (bucket + 1) * step;
            double sum = sum_until(pages, &place, until < end ? until : end, &number);
            read += number;
            if (read > most) return -1;
            double mean = sum / (double)number, *cell = own + (bucket - first);
            if (joined[bucket - first]++ == 0) *cell = mean;
            else if (way == MIN) *cell = mean < *cell ? mean : *cell;
            else if (way == MAX) *cell = mean > *cell ? mean : *cell;
            else *cell += mean;
        }
    }
    for (int64_t one = 0; one < lines; one++) {
        for (int64_t bucket = 0; bucket < width; bucket++) {
            int64_t cell = one * width + bucket;
            if (members[cell] == 0) continue;
            double joined = how[one] == MEAN ? total[cell] / (double)members[cell] : total[cell];
            if (!isfinite(joined)) continue;
            time[at] = (first + bucket) * step;
            value[at++] = joined;
        }
        ends[one] = at;
    }
    ends[lines] = read;
    return at;
}

/* The last sample of each row before a time; time is NEVER where there is none. */
EXPORTED void jobmeter_window_previous(
    const struct Pages *pages, int64_t count, const int64_t *rows, int64_t before, int64_t *time, double *value) {
    for (int64_t series = 0; series < count; series++) {
        int64_t row = rows[series];
        time[series] = NEVER;
        for (int32_t page = pages->first_page[row]; page >= 0; page = pages->next[page]) {
            if (time_at(pages, page, 0) >= before) break;
            int32_t low = 0, high = pages->filled[page] - 1; /* the last one below before */
            while (low < high) {
                int32_t middle = (low + high + 1) / 2;
                if (time_at(pages, page, middle) < before) low = middle;
                else high = middle - 1;
            }
            time[series] = time_at(pages, page, low);
            value[series] = pages->value[(int64_t)page * PAGE + low];
        }
    }
}
