/* Marks by which a reader of another process notices that rows changed under its eyes.
 *
 * Rows have a mark for each group of them. One writer makes it odd before it changes anything of the group, and even
 * behind: a read between two equal even marks saw no half write. Numbers that are read meanwhile are atomic, so that
 * each is an old or a new one. */
#ifndef JOBMETER_KERNEL_MARKS_H
#define JOBMETER_KERNEL_MARKS_H

#include <stdatomic.h>
#include <stdint.h>

#define GROUP 64 /* rows */
#define LOAD(place) atomic_load_explicit(&(place), memory_order_relaxed)
#define STORE(place, number) atomic_store_explicit(&(place), number, memory_order_relaxed)

typedef _Atomic uint64_t Mark;

static inline void begin_write(Mark *mark) {
    STORE(*mark, LOAD(*mark) + 1);
    atomic_thread_fence(memory_order_release);
}

static inline void end_write(Mark *mark) { atomic_store_explicit(mark, LOAD(*mark) + 1, memory_order_release); }

#endif
