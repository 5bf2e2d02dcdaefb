/* What ThreadSanitizer cannot see of the standard library, told to it.
 *
 * The standard library that comes with the compiler is not instrumented. Most of its synchronisation is generic or
 * inlined, and so instrumented as a part of who uses it; what is left are a few functions that the linker can put
 * these in front of (--wrap). Each tells the sanitizer the same order that the real function makes, at the same
 * address, and no more: it is told nothing that does not hold, so no race of ours is hidden. What only the standard
 * library does with data of its own, in code that nothing can be put in front of, is suppressed below.
 *
 * scripts/sanitizers.sh finds the functions' mangled names and gives them as the macros below.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

/* In the program, since some tests start it with an empty environment. */
const char *__tsan_default_options(void) { return OPTIONS; }

/* Names in these match any function on either stack of a report, so each names a type that no code of ours has. */
const char *__tsan_default_suppressions(void) {
    return
        /* How the test harness hands a test to its thread, and what it hears of its end: it is compiled without
         * instrumentation. */
        "race:Arc<std::sync::poison::mutex::Mutex<core::option::Option<test::run_test\n"
        "race:test::event::CompletedTest\n"
        /* The name and number of a thread, which its handle and the thread itself own together. The thread gives
         * its half back in code of the standard library, at its very end. */
        "race:Arc<std::thread::thread::Inner\n"
        /* The count of a scope's threads, which they and the scope own together, in the same way. */
        "race:Arc<std::thread::scoped::ScopeData\n"
        /* The buffer of the standard output, under a lock of the standard library. What is being printed is not on
         * these stacks. */
        "race:BufWriter<std::io::stdio::StdoutRaw>\n";
}

/* Finding the names for a suppression takes a process, with a pipe each way. Tests that count descriptors want them
 * there from the beginning. */
void __sanitizer_symbolize_pc(void *address, const char *format, char *into, uintptr_t room);
__attribute__((constructor)) static void begin_to_find_names(void) {
    char name[64];
    if (getenv("NEXTEST_BINARY_ID")) __sanitizer_symbolize_pc(__builtin_return_address(0), "%f", name, sizeof name);
}

#define GLUE(a, b) a##b
#define WRAP(name) GLUE(__wrap_, name)
#define REAL(name) GLUE(__real_, name)

/* Mutex::lock when another holds it. Unlocking is inlined. */
void REAL(MUTEX_LOCK)(void *mutex);
void WRAP(MUTEX_LOCK)(void *mutex) {
    REAL(MUTEX_LOCK)(mutex);
    __tsan_acquire(mutex);
}

/* RwLock::read and write when another holds it: the state is the first or the second of two words. */
void REAL(RWLOCK_READ)(char *lock);
void WRAP(RWLOCK_READ)(char *lock) {
    REAL(RWLOCK_READ)(lock);
    __tsan_acquire(lock);
    __tsan_acquire(lock + 4);
}

void REAL(RWLOCK_WRITE)(char *lock);
void WRAP(RWLOCK_WRITE)(char *lock) {
    REAL(RWLOCK_WRITE)(lock);
    __tsan_acquire(lock);
    __tsan_acquire(lock + 4);
}

/* Condvar::wait gives the mutex back and takes it again. */
void REAL(CONDVAR_WAIT)(void *condvar, void *mutex);
void WRAP(CONDVAR_WAIT)(void *condvar, void *mutex) {
    __tsan_release(mutex);
    REAL(CONDVAR_WAIT)(condvar, mutex);
    __tsan_acquire(mutex);
}

bool REAL(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *mutex, uint64_t seconds, uint32_t nanoseconds);
bool WRAP(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *mutex, uint64_t seconds, uint32_t nanoseconds) {
    __tsan_release(mutex);
    bool in_time = REAL(CONDVAR_WAIT_TIMEOUT)(condvar, mutex, seconds, nanoseconds);
    __tsan_acquire(mutex);
    return in_time;
}

/* Once::call, behind OnceLock and LazyLock: what it ran comes before whoever finds it done. That it is done can be
 * seen a moment before this says so, so a report about the very first use of a value deserves a second look. */
void REAL(ONCE_CALL)(void *once, bool even_if_poisoned, void *run, void *table, void *caller);
void WRAP(ONCE_CALL)(void *once, bool even_if_poisoned, void *run, void *table, void *caller) {
    REAL(ONCE_CALL)(once, even_if_poisoned, run, table, caller);
    __tsan_acquire(once);
    __tsan_release(once);
}

/* A scoped thread's last act comes before the end of thread::scope, which reads one of these three words. */
void REAL(SCOPE_END)(char *scope, bool panicked);
void WRAP(SCOPE_END)(char *scope, bool panicked) {
    __tsan_release(scope);
    __tsan_release(scope + 8);
    __tsan_release(scope + 16);
    REAL(SCOPE_END)(scope, panicked);
}

/* Fences, which the sanitizer does not model. Arc needs this one thing of them: its last owner lowers the count,
 * then has an acquire fence; all that others did before they lowered the same count comes before what follows. So a
 * fence acquires from the address that the same thread changed last. */
static _Thread_local void *changed;

enum { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

void __real___tsan_atomic_thread_fence(int order);
void __wrap___tsan_atomic_thread_fence(int order) {
    __real___tsan_atomic_thread_fence(order);
    if (changed && (order == ACQUIRE || order == ACQ_REL || order == SEQ_CST)) __tsan_acquire(changed);
}

uint64_t __real___tsan_atomic64_fetch_sub(volatile uint64_t *at, uint64_t value, int order);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *at, uint64_t value, int order) {
    changed = (void *)at;
    return __real___tsan_atomic64_fetch_sub(at, value, order);
}

uint64_t __real___tsan_atomic64_compare_exchange_val(volatile uint64_t *at, uint64_t from, uint64_t to, int order,
                                                     int order_if_not);
uint64_t __wrap___tsan_atomic64_compare_exchange_val(volatile uint64_t *at, uint64_t from, uint64_t to, int order,
                                                     int order_if_not) {
    changed = (void *)at;
    return __real___tsan_atomic64_compare_exchange_val(at, from, to, order, order_if_not);
}
