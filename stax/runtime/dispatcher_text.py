"""The LLVM IR of the native call. See dispatcher.py for what it is for.

Reference counts are changed by Py_IncRef and Py_DecRef, never inline: immortal objects and the
width of the count differ between versions of Python.  The tables are declared in dispatcher.py, and
`%x = field %Table %p, name` reads a field of one (see `with_tables` there).
"""

TEXT = """
@stax_process = global %Process zeroinitializer
@block_name = internal constant [11 x i8] c"stax.block\\00"

declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyErr_NoMemory()
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)

; Adds 1 to three doubles: the program of the trial call.
define i32 @stax_trial(ptr %context, ptr %inputs, ptr %outputs, ptr %extents) {
  %x = load ptr, ptr %inputs
  %y = load ptr, ptr %outputs
  %v = load <3 x double>, ptr %x, align 8
  %w = fadd <3 x double> %v, <double 1.0, double 1.0, double 1.0>
  store <3 x double> %w, ptr %y, align 8
  ret i32 0
}

define internal void @give_back(ptr %capsule) {
  %data = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @block_name)
  %release = field %Process @stax_process, release
  call void %release(ptr %data)
  ret void
}

; An ndarray in recycled memory, which a capsule gives back when it dies. Null with an error set.
define internal ptr @new_recycled(ptr %output, i64 %bytes) noinline {
entry:
  %allocate = field %Process @stax_process, allocate
  %release = field %Process @stax_process, release
  %data = call ptr %allocate(i64 %bytes)
  %failed = icmp eq ptr %data, null
  br i1 %failed, label %no.memory, label %wrap
no.memory:
  %ignored = call ptr @PyErr_NoMemory()
  ret ptr null
wrap:
  %capsule = call ptr @PyCapsule_New(ptr %data, ptr @block_name, ptr @give_back)
  %no.capsule = icmp eq ptr %capsule, null
  br i1 %no.capsule, label %free, label %array
free:
  call void %release(ptr %data)
  ret ptr null
array:
  ; NPY_ARRAY_CARRAY
  %x = call ptr @new_ndarray(ptr %output, ptr %data, i32 1281)
  %no.array = icmp eq ptr %x, null
  br i1 %no.array, label %drop.capsule, label %own
drop.capsule:
  call void @Py_DecRef(ptr %capsule)
  ret ptr null
own:
  %set = field %Process @stax_process, set_base_object
  ; Takes the capsule, also when it fails.
  %r = call i32 %set(ptr %x, ptr %capsule)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %drop.array, label %exit
drop.array:
  call void @Py_DecRef(ptr %x)
  ret ptr null
exit:
  ret ptr %x
}

; Over %data if it is not null, over memory of its own otherwise. Null with an error set.
define internal ptr @new_ndarray(ptr %output, ptr %data, i32 %flags) {
  %descr = field %Output %output, descr
  %dims = field %Output %output, dims
  %nd = field %Output %output, nd
  %nd32 = trunc i64 %nd to i32
  %class = field %Process @stax_process, array_type
  %new = field %Process @stax_process, new_from_descr
  ; The constructor takes a reference to the dtype.
  call void @Py_IncRef(ptr %descr)
  %x = call ptr %new(ptr %class, ptr %descr, i32 %nd32, ptr %dims, ptr null, ptr %data, i32 %flags,
                     ptr null)
  ret ptr %x
}

; A fresh read-only ndarray for a result. Null with an error set.
define internal ptr @new_result(ptr %output) {
entry:
  %bytes = field %Output %output, recycled_bytes
  %small = icmp eq i64 %bytes, 0
  br i1 %small, label %own, label %recycled
own:
  %a = call ptr @new_ndarray(ptr %output, ptr null, i32 0)
  br label %made
recycled:
  %b = call ptr @new_recycled(ptr %output, i64 %bytes)
  br label %made
made:
  %x = phi ptr [%a, %own], [%b, %recycled]
  %failed = icmp eq ptr %x, null
  br i1 %failed, label %exit, label %protect
protect:
  %flags.p = getelementptr i8, ptr %x, i64 64
  %flags = load i32, ptr %flags.p
  ; all but NPY_ARRAY_WRITEABLE
  %read.only = and i32 %flags, -1025
  store i32 %read.only, ptr %flags.p
  br label %exit
exit:
  ret ptr %x
}

define internal void @drop(ptr %objects, i64 %n) noinline {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %exit
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %object.p = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object.p
  call void @Py_DecRef(ptr %object)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; Allocates the results into %objects and runs the program; of one that may write results over
; inputs, those that %objects has already are used. Returns its status; on any status but 0 the
; results are gone. -1 with a Python error set: memory ran out, or the program left an error.
define internal i32 @execute(ptr %variant, ptr %inputs, ptr %objects) noinline {
entry:
  %outputs = field %Variant %variant, outputs
  %n = field %Variant %variant, n_outputs
  %arena.bytes = field %Variant %variant, arena_bytes
  %flags = field %Variant %variant, flags
  %slots = add i64 %n, 1
  %pointers = alloca ptr, i64 %slots, align 16
  %taken = field %Variant %variant, taken
  %takes = icmp ne ptr %taken, null
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %result, label %arena
result:
  %i = phi i64 [0, %entry], [%i.next, %stored]
  %object.p = getelementptr ptr, ptr %objects, i64 %i
  br i1 %takes, label %look, label %make
look:
  %there = load ptr, ptr %object.p
  %is.there = icmp ne ptr %there, null
  br i1 %is.there, label %stored, label %make
make:
  %output = getelementptr %Output, ptr %outputs, i64 %i
  %made = call ptr @new_result(ptr %output)
  store ptr %made, ptr %object.p
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %drop.some, label %stored
drop.some:
  ; All of them are there, or null, where some may be.
  %known = select i1 %takes, i64 %n, i64 %i
  call void @drop(ptr %objects, i64 %known)
  ret i32 -1
stored:
  %x = phi ptr [%there, %look], [%made, %make]
  %data.p = getelementptr i8, ptr %x, i64 16
  %data = load ptr, ptr %data.p
  %pointer.p = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer.p
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %result, label %arena

arena:
  %large = icmp ugt i64 %arena.bytes, 16384
  %on.stack = select i1 %large, i64 0, i64 %arena.bytes
  %stack = alloca i8, i64 %on.stack, align 64
  br i1 %large, label %arena.allocate, label %run
arena.allocate:
  %allocate = field %Process @stax_process, allocate
  %heap = call ptr %allocate(i64 %arena.bytes)
  %no.arena = icmp eq ptr %heap, null
  br i1 %no.arena, label %no.memory, label %run
no.memory:
  call void @drop(ptr %objects, i64 %n)
  %ignored = call ptr @PyErr_NoMemory()
  ret i32 -1

run:
  %arena.data = phi ptr [%stack, %arena], [%heap, %arena.allocate]
  %arena.slot = getelementptr ptr, ptr %pointers, i64 %n
  store ptr %arena.data, ptr %arena.slot
  %program = field %Variant %variant, program
  %extents = field %Variant %variant, extents
  %context = field %Variant %variant, context
  %release.flag = and i64 %flags, 1
  %releases = icmp ne i64 %release.flag, 0
  br i1 %releases, label %without.gil, label %with.gil
with.gil:
  %status.a = call i32 %program(ptr %context, ptr %inputs, ptr %pointers, ptr %extents)
  br label %ran
without.gil:
  %thread = call ptr @PyEval_SaveThread()
  %status.b = call i32 %program(ptr %context, ptr %inputs, ptr %pointers, ptr %extents)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %status = phi i32 [%status.a, %with.gil], [%status.b, %without.gil]
  br i1 %large, label %arena.release, label %check
arena.release:
  %release = field %Process @stax_process, release
  call void %release(ptr %arena.data)
  br label %check
check:
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %exit, label %drop.all
drop.all:
  call void @drop(ptr %objects, i64 %n)
  br label %exit
exit:
  ret i32 %status
}

; The addresses of the data of the variant's constants.
define internal void @fill_constants(ptr %variant, ptr %inputs) {
entry:
  %n = field %Variant %variant, n_constants
  %constants = field %Variant %variant, constants
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %store]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %exit, label %store
store:
  %constant.p = getelementptr ptr, ptr %constants, i64 %i
  %data = load ptr, ptr %constant.p
  %input.p = getelementptr ptr, ptr %inputs, i64 %i
  store ptr %data, ptr %input.p
  %next = add i64 %i, 1
  br label %loop
exit:
  ret void
}

; An array around result number %i; takes the ndarray. Null with an error set.
define internal ptr @wrap(ptr %entry.table, ptr %variant, ptr %objects, i64 %i) {
entry:
  %object.p = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object.p
  %class = field %Entry %entry.table, array_class
  %x = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %failed = icmp eq ptr %x, null
  br i1 %failed, label %drop, label %fill
drop:
  call void @Py_DecRef(ptr %object)
  ret ptr null
fill:
  %outputs = field %Variant %variant, outputs
  %output = getelementptr %Output, ptr %outputs, i64 %i
  %type = load ptr, ptr %output
  call void @Py_IncRef(ptr %type)
  %type.o = field %Entry %entry.table, type_offset
  %type.p = getelementptr i8, ptr %x, i64 %type.o
  store ptr %type, ptr %type.p
  %value.o = field %Entry %entry.table, value_offset
  %value.p = getelementptr i8, ptr %x, i64 %value.o
  store ptr %object, ptr %value.p
  ret ptr %x
}

; The result of a call: arrays around the ndarrays, which it takes, in their structure. Null with an
; error set.
define internal ptr @wrap_all(ptr %entry.table, ptr %variant, ptr %objects) {
entry:
  %n = field %Variant %variant, n_outputs
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %set]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %build, label %next.array
next.array:
  %x = call ptr @wrap(ptr %entry.table, ptr %variant, ptr %objects, i64 %i)
  %next = add i64 %i, 1
  %bad = icmp eq ptr %x, null
  br i1 %bad, label %drop.all, label %set
drop.all:
  call void @drop(ptr %objects, i64 %i)
  %rest = getelementptr ptr, ptr %objects, i64 %next
  %n.rest = sub i64 %n, %next
  call void @drop(ptr %rest, i64 %n.rest)
  ret ptr null
set:
  %object.p = getelementptr ptr, ptr %objects, i64 %i
  store ptr %x, ptr %object.p
  br label %loop
build:
  %result = call ptr @build(ptr %variant, ptr %objects)
  ret ptr %result
}

; Without the GIL another thread may delete an input, so the call holds its ndarray.
define internal void @hold(ptr %values, i64 %n) noinline {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %exit
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %value.p = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value.p
  call void @Py_IncRef(ptr %value)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; One variant's try at a call: 0 if it is for other arguments, 1 with the result (null with an error
; set) in %answer, 2 if the slow callable has to say what is wrong.
define internal i32 @attempt(ptr %table, ptr %v, ptr %args, i64 %n, ptr %names, ptr %answer) {
entry:
  %positional = field %Variant %v, positional
  %n.names = field %Variant %v, n_names
  %right.n = icmp eq i64 %n, %positional
  br i1 %right.n, label %named, label %no
named:
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %sized, label %count.names
count.names:
  %given.names = call i64 @PyTuple_Size(ptr %names)
  br label %sized
sized:
  %names.given = phi i64 [0, %named], [%given.names, %count.names]
  %right.names = icmp eq i64 %names.given, %n.names
  br i1 %right.names, label %start, label %no
start:
  %n.leaves = field %Variant %v, n_leaves
  %n.constants = field %Variant %v, n_constants
  %n.inputs = add i64 %n.leaves, %n.constants
  %values = alloca ptr, i64 %n.leaves, align 16
  %scratch = alloca i64, i64 %n.leaves, align 16
  %inputs = alloca ptr, i64 %n.inputs, align 16
  %n.steps = field %Variant %v, n_arguments
  %flat = icmp eq i64 %n.steps, 0
  br i1 %flat, label %check, label %apart
apart:
  %held = alloca ptr, i64 %n.leaves, align 16
  %is.apart = call i1 @walk(ptr %v, ptr %args, ptr %names, ptr %held)
  br i1 %is.apart, label %check, label %no
check:
  %leaves = phi ptr [%args, %start], [%held, %apart]
  %n.held = phi i64 [0, %start], [%n.leaves, %apart]
  %right = call i1 @accept(ptr %table, ptr %v, ptr %leaves, ptr %values, ptr %inputs,
                           ptr %scratch)
  br i1 %right, label %accepted, label %drop.no
drop.no:
  call void @drop(ptr %leaves, i64 %n.held)
  br label %no
no:
  ret i32 0

accepted:
  %donated = field %Variant %v, donated
  %donates = icmp ne ptr %donated, null
  br i1 %donates, label %donating, label %run
donating:
  %once = call i1 @given_once(ptr %table, ptr %v, ptr %leaves, ptr %values)
  br i1 %once, label %run, label %drop.slow
run:
  %constants = getelementptr ptr, ptr %inputs, i64 %n.leaves
  call void @fill_constants(ptr %v, ptr %constants)
  %n.outputs = field %Variant %v, n_outputs
  %objects = alloca ptr, i64 %n.outputs, align 16
  call void @take_over(ptr %table, ptr %v, ptr %leaves, ptr %values, ptr %objects)
  %flags = field %Variant %v, flags
  %release.flag = and i64 %flags, 1
  %holds = icmp ne i64 %release.flag, 0
  br i1 %holds, label %hold, label %plain
plain:
  %status.a = call i32 @execute(ptr %v, ptr %inputs, ptr %objects)
  br label %ran
hold:
  call void @hold(ptr %values, i64 %n.leaves)
  %status.b = call i32 @execute(ptr %v, ptr %inputs, ptr %objects)
  call void @drop(ptr %values, i64 %n.leaves)
  br label %ran
ran:
  %status = phi i32 [%status.a, %plain], [%status.b, %hold]
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %delete, label %failed
failed:
  %error = call ptr @PyErr_Occurred()
  %no.error = icmp eq ptr %error, null
  br i1 %no.error, label %drop.slow, label %raise
raise:
  call void @drop(ptr %leaves, i64 %n.held)
  store ptr null, ptr %answer
  ret i32 1
drop.slow:
  call void @drop(ptr %leaves, i64 %n.held)
  ret i32 2
delete:
  br i1 %donates, label %delete.donated, label %wrap
delete.donated:
  call void @delete_donated(ptr %table, ptr %v, ptr %leaves)
  br label %wrap
wrap:
  call void @drop(ptr %leaves, i64 %n.held)
  %result = call ptr @wrap_all(ptr %table, ptr %v, ptr %objects)
  store ptr %result, ptr %answer
  ret i32 1
}

; PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names). Inside a
; trace every call is a slow one.
define ptr @stax_call_arrays(ptr %self, ptr %args, i64 %n, ptr %names) {
entry:
  %table.p = getelementptr i8, ptr %self, i64 16
  %table = load ptr, ptr %table.p
  %answer = alloca ptr
  %first = load ptr, ptr %table
  %none = icmp eq ptr %first, null
  br i1 %none, label %slow, label %look
look:
  %variable = field %Entry %table, trace
  %no.variable = icmp eq ptr %variable, null
  br i1 %no.variable, label %try, label %read
read:
  %trace.p = alloca ptr
  %r = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %trace.p)
  %unread = icmp ne i32 %r, 0
  br i1 %unread, label %raise, label %traced
traced:
  %trace = load ptr, ptr %trace.p
  call void @Py_DecRef(ptr %trace)
  %python.none = field %Process @stax_process, none
  %untraced = icmp eq ptr %trace, %python.none
  br i1 %untraced, label %try, label %slow
try:
  %v = phi ptr [%first, %look], [%first, %traced], [%next, %miss]
  %status = call i32 @attempt(ptr %table, ptr %v, ptr %args, i64 %n, ptr %names, ptr %answer)
  switch i32 %status, label %slow [
    i32 0, label %miss
    i32 1, label %answered
  ]
miss:
  %next = load ptr, ptr %v
  %end = icmp eq ptr %next, null
  br i1 %end, label %slow, label %try
slow:
  %callable = field %Entry %table, slow
  %given = call ptr @PyObject_Vectorcall(ptr %callable, ptr %args, i64 %n, ptr %names)
  ret ptr %given
answered:
  %result = load ptr, ptr %answer
  ret ptr %result
raise:
  ret ptr null
}

; The ndarrays that the caller wants results in, each None or one; null where it gives none.
define internal void @fill_given(ptr %v, ptr %given, i64 %some, ptr %objects) {
entry:
  %n = field %Variant %v, n_outputs
  %none = field %Process @stax_process, none
  %gives = icmp ne i64 %some, 0
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %set]
  %end = icmp eq i64 %k, %n
  br i1 %end, label %exit, label %look
look:
  %next = add i64 %k, 1
  %object.p = getelementptr ptr, ptr %objects, i64 %k
  br i1 %gives, label %read, label %set
read:
  %x.p = getelementptr ptr, ptr %given, i64 %k
  %x = load ptr, ptr %x.p
  %is.none = icmp eq ptr %x, %none
  %known = select i1 %is.none, ptr null, ptr %x
  call void @Py_IncRef(ptr %known)
  br label %set
set:
  %object = phi ptr [null, %look], [%known, %read]
  store ptr %object, ptr %object.p
  br label %loop
exit:
  ret void
}

; PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t n), over exact ndarrays whose
; number and types the caller vouches for. A list of ndarrays, or the status as an int. Behind the
; inputs may come, for each result of a program that writes some over inputs, an ndarray or None.
define ptr @stax_call_ndarrays(ptr %self, ptr %args, i64 %n.given) {
entry:
  %table.p = getelementptr i8, ptr %self, i64 16
  %table = load ptr, ptr %table.p
  %v = load ptr, ptr %table
  %n = field %Variant %v, n_leaves
  %n.constants = field %Variant %v, n_constants
  %n.all = add i64 %n, %n.constants
  %inputs = alloca ptr, i64 %n.all, align 16
  %n.outputs = field %Variant %v, n_outputs
  %objects = alloca ptr, i64 %n.outputs, align 16
  %constants = getelementptr ptr, ptr %inputs, i64 %n
  call void @fill_constants(ptr %v, ptr %constants)
  %taken = field %Variant %v, taken
  %takes = icmp ne ptr %taken, null
  br i1 %takes, label %over, label %input
over:
  %given = getelementptr ptr, ptr %args, i64 %n
  %more = sub i64 %n.given, %n
  call void @fill_given(ptr %v, ptr %given, i64 %more, ptr %objects)
  br label %input
input:
  %i = phi i64 [0, %entry], [0, %over], [%i.next, %input.set]
  %filled = icmp eq i64 %i, %n
  br i1 %filled, label %run, label %input.set
input.set:
  %value.p = getelementptr ptr, ptr %args, i64 %i
  %value = load ptr, ptr %value.p
  %data.p = getelementptr i8, ptr %value, i64 16
  %data = load ptr, ptr %data.p
  %input.p = getelementptr ptr, ptr %inputs, i64 %i
  store ptr %data, ptr %input.p
  %i.next = add i64 %i, 1
  br label %input
run:
  %status = call i32 @execute(ptr %v, ptr %inputs, ptr %objects)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %collect, label %failed
failed:
  %error = call ptr @PyErr_Occurred()
  %no.error = icmp eq ptr %error, null
  br i1 %no.error, label %report, label %raise
report:
  %status.wide = sext i32 %status to i64
  %number = call ptr @PyLong_FromLong(i64 %status.wide)
  ret ptr %number
raise:
  ret ptr null
collect:
  %list = call ptr @PyList_New(i64 %n.outputs)
  %no.list = icmp eq ptr %list, null
  br i1 %no.list, label %drop.all, label %fill.begin
drop.all:
  call void @drop(ptr %objects, i64 %n.outputs)
  ret ptr null
fill.begin:
  %any = icmp sgt i64 %n.outputs, 0
  br i1 %any, label %fill, label %exit
fill:
  %j = phi i64 [0, %fill.begin], [%j.next, %fill]
  %object.p = getelementptr ptr, ptr %objects, i64 %j
  %object = load ptr, ptr %object.p
  %r = call i32 @PyList_SetItem(ptr %list, i64 %j, ptr %object)
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %n.outputs
  br i1 %j.more, label %fill, label %exit
exit:
  ret ptr %list
}
"""
