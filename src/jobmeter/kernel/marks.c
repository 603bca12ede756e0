/* Marks of rows that are written by other functions than these of the library, or read by another process. */
#include "common.h"
#include "marks.h"

/* Rows of one group may come several times. */
EXPORTED void jobmeter_marks_begin_write(Mark *marks, const int64_t *rows, int64_t count) {
    for (int64_t at = 0; at < count; at++) {
        Mark *mark = marks + rows[at] / GROUP;
        if (LOAD(*mark) % 2 == 0) STORE(*mark, LOAD(*mark) + 1);
    }
    atomic_thread_fence(memory_order_release);
}

EXPORTED void jobmeter_marks_end_write(Mark *marks, const int64_t *rows, int64_t count) {
    atomic_thread_fence(memory_order_release);
    for (int64_t at = 0; at < count; at++) {
        Mark *mark = marks + rows[at] / GROUP;
        if (LOAD(*mark) % 2) STORE(*mark, LOAD(*mark) + 1);
    }
}

/* seen gets the mark of each row. Gives 0 where one of them is being written, or a row is not that series. */
EXPORTED int64_t jobmeter_marks_begin_read(
    const Mark *marks, const _Atomic uint64_t *series, const _Atomic uint8_t *there, const int64_t *rows,
    const uint64_t *wanted, int64_t count, uint64_t *seen) {
    for (int64_t at = 0; at < count; at++) {
        int64_t row = rows[at];
        seen[at] = atomic_load_explicit(&marks[row / GROUP], memory_order_acquire);
        if (seen[at] % 2 || !LOAD(there[row]) || LOAD(series[row]) != wanted[at]) return 0;
    }
    return 1;
}

/* Gives 1 where nothing of the rows was written since begin_read. */
EXPORTED int64_t jobmeter_marks_end_read(const Mark *marks, const int64_t *rows, int64_t count, const uint64_t *seen) {
    atomic_thread_fence(memory_order_acquire);
    for (int64_t at = 0; at < count; at++) {
        if (LOAD(marks[rows[at] / GROUP]) != seen[at]) return 0;
    }
    return 1;
}
