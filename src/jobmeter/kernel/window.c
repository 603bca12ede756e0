/* Reading samples that lie in pages: what jobmeter.store.window.pages keeps. */
#include <math.h>
#include <string.h>

#include "common.h"
#include "marks.h"

#define PAGE 64
#define NEVER (-1)
#define CHECKED 64 /* pages of a walk after which its mark is read again */

enum Join { MEAN, SUM, MIN, MAX };

/* A page holds up to PAGE samples of one series: a base time, and for each sample its distance from it and its value;
   at least one of them is there. Pages of a series are chained; a series without one has first_page -1. A writer in
   another process may change all of it meanwhile: what is read is then of no use (marks.h), but stays within arrays. */
struct Pages {
    const _Atomic int32_t *distance;
    const _Atomic double *value;
    const _Atomic int64_t *base;
    const _Atomic int32_t *next;
    const _Atomic int32_t *filled;
    const _Atomic int32_t *first_page;
    const _Atomic int64_t *since; /* by row: every sample at or after that time is there */
    const Mark *marks;
    int64_t size; /* of pages */
};

/* Where a walk along the pages of a row is; page -1 at its end. */
struct Place {
    const Mark *mark;
    uint64_t seen;
    int32_t page, at, filled, steps;
};

static inline int64_t time_at(const struct Pages *pages, int32_t page, int32_t at) {
    return LOAD(pages->base[page]) + LOAD(pages->distance[(int64_t)page * PAGE + at]);
}

/* Pages that are given to another series may lead in a circle: then the mark of the row has changed. */
static inline void enter(const struct Pages *pages, struct Place *place, int32_t page) {
    place->at = 0;
    place->page = -1;
    if (page < 0 || page >= pages->size) return;
    if (++place->steps % CHECKED == 0 && LOAD(*place->mark) != place->seen) return;
    place->filled = LOAD(pages->filled[page]);
    if (place->filled >= 1 && place->filled <= PAGE) place->page = page;
}

/* The first page of a row; none where the row is being written. */
static inline struct Place begin(const struct Pages *pages, int64_t row) {
    struct Place place = {pages->marks + row / GROUP, 0, -1, 0, 0, 0};
    place.seen = atomic_load_explicit(place.mark, memory_order_acquire);
    if (place.seen % 2 == 0) enter(pages, &place, LOAD(pages->first_page[row]));
    return place;
}

static inline void enter_next(const struct Pages *pages, struct Place *place) {
    enter(pages, place, LOAD(pages->next[place->page]));
}

/* The first sample of the page at or after a time, from a place on; filled where there is none. */
static inline int32_t first_at(const struct Pages *pages, const struct Place *place, int64_t time) {
    const _Atomic int32_t *distance = pages->distance + (int64_t)place->page * PAGE;
    int64_t limit = time - LOAD(pages->base[place->page]);
    int32_t low = place->at, high = place->filled;
    if (LOAD(distance[high - 1]) < limit) return high;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (LOAD(distance[middle]) >= limit) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* The first sample of a row at or after a time; page is -1 when there is none. In registers, where it is inlined. */
static inline __attribute__((always_inline)) struct Place seek(const struct Pages *pages, int64_t row, int64_t start) {
    struct Place place = begin(pages, row);
    for (; place.page >= 0; enter_next(pages, &place)) {
        place.at = first_at(pages, &place, start);
        if (place.at < place.filled) break;
    }
    return place;
}

static inline void step_on(const struct Pages *pages, struct Place *place) {
    if (++place->at == place->filled) enter_next(pages, place);
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
            const _Atomic int32_t *distance = pages->distance + (int64_t)place.page * PAGE;
            const _Atomic double *own = pages->value + (int64_t)place.page * PAGE;
            int64_t base = LOAD(pages->base[place.page]), limit = end - base, left = room - at;
            int32_t one = place.at, last = left < place.filled - one ? one + (int32_t)left : place.filled;
            for (; one < last && LOAD(distance[one]) < limit; one++, at++) {
                index[at] = (uint32_t)series;
                time[at] = base + LOAD(distance[one]);
                value[at] = LOAD(own[one]);
            }
            if (one < place.filled) break;
            enter_next(pages, &place);
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
            double reading = LOAD(pages->value[(int64_t)place.page * PAGE + place.at]);
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
        const _Atomic int32_t *distance = pages->distance + (int64_t)place->page * PAGE;
        /* Also one load, as LOAD is; but compilers take a detour for an atomic double, which costs a fifth here. */
        const volatile double *value = (const volatile double *)pages->value + (int64_t)place->page * PAGE;
        int64_t limit = until - LOAD(pages->base[place->page]);
        int32_t at = place->at;
        for (; at < place->filled && LOAD(distance[at]) < limit; at++) sum += value[at];
        *number += at - place->at;
        place->at = at;
        if (at < place->filled) break;
        enter_next(pages, place);
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
        if (rows[series] < 0 || LOAD(pages->since[rows[series]]) > start) return -2;
    }
    for (int64_t series = 0; series < count; series++) {
        double *own = total + line[series] * width;
        int64_t *joined = members + line[series] * width;
        uint8_t way = how[line[series]];
        struct Place place = seek(pages, rows[series], start);
        while (place.page >= 0) {
            int64_t when = time_at(pages, place.page, place.at), number = 0;
            if (when < start || when >= end) break;
            int64_t bucket = floor_divide(when, step), until = (bucket + 1) * step;
            double sum = sum_until(pages, &place, until < end ? until : end, &number);
            if (number == 0) break; /* the page changed meanwhile */
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
        for (struct Place place = begin(pages, row); place.page >= 0; enter_next(pages, &place)) {
            int32_t low = first_at(pages, &place, before) - 1; /* the last one below before */
            if (low < 0) break;
            time[series] = time_at(pages, place.page, low);
            value[series] = LOAD(pages->value[(int64_t)place.page * PAGE + low]);
        }
    }
}
