/* Adding samples to pages: what jobmeter.store.window.pages keeps. */
#include "common.h"
#include "marks.h"

#define PAGE 64
#define NO_PAGE (-1)
#define AHEAD 12

/* As in window.c, but to be written, with the pages that were given back, and what is known of each row. */
struct Places {
    _Atomic int32_t *distance;
    _Atomic double *value;
    _Atomic int64_t *base;
    _Atomic int32_t *next;
    _Atomic int32_t *filled;
    const int32_t *free;
    _Atomic int32_t *first_page;
    int32_t *last_page;
    int64_t *last;
    const int64_t *since;
    _Atomic int64_t *written; /* the number of the last write */
    Mark *marks;
};

/* How many pages were given back, which is the first that was never used, and how many there are. */
struct Stock {
    int64_t returned, fresh, size;
};

static int32_t take(const struct Places *to, struct Stock *stock) {
    int32_t page;
    if (stock->returned > 0) page = to->free[--stock->returned];
    else if (stock->fresh < stock->size) page = (int32_t)stock->fresh++;
    else return NO_PAGE;
    STORE(to->next[page], NO_PAGE);
    STORE(to->filled[page], 0);
    return page;
}

/* Pages lie far from each other: their memory is asked for before it is needed. */
static inline void fetch(const struct Places *to, int64_t row) {
    int32_t page = to->last_page[row];
    if (page < 0) return;
    int64_t cell = (int64_t)page * PAGE + LOAD(to->filled[page]);
    __builtin_prefetch(to->distance + cell, 1);
    __builtin_prefetch(to->value + cell, 1);
}

/* The page in which the next sample of a row belongs; NO_PAGE where that takes more than this. */
static inline int32_t page_for(const struct Places *to, struct Stock *stock, int64_t row, int64_t time) {
    int32_t page = to->last_page[row];
    if (page >= 0 && time - LOAD(to->base[page]) > INT32_MAX) return NO_PAGE;
    if (page >= 0 && LOAD(to->filled[page]) < PAGE) return page;
    int32_t following = take(to, stock);
    if (following < 0) return NO_PAGE;
    STORE(to->base[following], time);
    if (page >= 0) STORE(to->next[page], following);
    else STORE(to->first_page[row], following);
    to->last_page[row] = following;
    return following;
}

/* Whether a sample is the last of its row again, as in a request that is sent twice: its value is the new one then. */
static inline int repeats(const struct Places *to, int64_t row, int64_t time, double value) {
    int32_t page = to->last_page[row];
    if (page < 0 || time != to->last[row]) return 0;
    int64_t cell = (int64_t)page * PAGE + LOAD(to->filled[page]) - 1;
    if (LOAD(to->base[page]) + LOAD(to->distance[cell]) != time) return 0;
    STORE(to->value[cell], value);
    return 1;
}

/* rows: by index, the row of a series, below 0 where it has none. Samples of no row, and those before its since, are
   passed over. write becomes the number of the last write of each row with a sample. left gets the positions of those that are before the last of their row, are before keep_from, or find no
   room; gives how many these are. */
EXPORTED int64_t jobmeter_window_append(
    const struct Places *to, struct Stock *stock, const int64_t *rows, const uint32_t *index, const int64_t *time,
    const double *value, int64_t count, int64_t keep_from, int64_t write, int64_t *left) {
    int64_t over = 0;
    Mark *open = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t row = rows[index[at]], when = time[at];
        if (at + AHEAD < count && rows[index[at + AHEAD]] >= 0) fetch(to, rows[index[at + AHEAD]]);
        if (row < 0) continue;
        Mark *mark = to->marks + row / GROUP;
        if (mark != open) {
            if (open) end_write(open);
            begin_write(open = mark);
        }
        STORE(to->written[row], write);
        if (when >= keep_from && (when < to->since[row] || repeats(to, row, when, value[at]))) continue;
        int32_t page = NO_PAGE;
        if (when >= keep_from && when > to->last[row]) page = page_for(to, stock, row, when);
        if (page < 0) {
            left[over++] = at;
            continue;
        }
        int32_t filled = LOAD(to->filled[page]);
        int64_t cell = (int64_t)page * PAGE + filled;
        STORE(to->distance[cell], (int32_t)(when - LOAD(to->base[page])));
        STORE(to->value[cell], value[at]);
        STORE(to->filled[page], filled + 1);
        to->last[row] = when;
    }
    if (open) end_write(open);
    return over;
}
