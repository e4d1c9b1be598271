"""The LLVM IR that looks at the leaves of a call: are they what a variant takes, and where is it?

A leaf is an array of the variant's type, known by the identity of its type object, or an ndarray or
a Python number that stands for such an array. No Python code runs between the check of a leaf and
the use of what was found in it.
"""

TEXT = """
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i32 @PyCapsule_IsValid(ptr, ptr)

; Whether kernels can read an ndarray as it is: its dtype, shape and layout are those of the leaf.
define internal i1 @ndarray_fits(ptr %leaf, ptr %x) {
entry:
  %descr = field %Leaf %leaf, descr
  %x.descr.p = getelementptr i8, ptr %x, i64 56
  %x.descr = load ptr, ptr %x.descr.p
  %right.dtype = icmp eq ptr %descr, %x.descr
  %nd = field %Leaf %leaf, nd
  %x.nd.p = getelementptr i8, ptr %x, i64 24
  %x.nd32 = load i32, ptr %x.nd.p
  %x.nd = sext i32 %x.nd32 to i64
  %right.nd = icmp eq i64 %nd, %x.nd
  %flags.p = getelementptr i8, ptr %x, i64 64
  %flags = load i32, ptr %flags.p
  ; NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
  %layout = and i32 %flags, 257
  %right.layout = icmp eq i32 %layout, 257
  %right.a = and i1 %right.dtype, %right.nd
  %right = and i1 %right.a, %right.layout
  br i1 %right, label %dims, label %no
dims:
  %wanted = field %Leaf %leaf, dims
  %x.dims.p = getelementptr i8, ptr %x, i64 32
  %given = load ptr, ptr %x.dims.p
  br label %dim
dim:
  %i = phi i64 [0, %dims], [%next, %compare]
  %done = icmp eq i64 %i, %nd
  br i1 %done, label %yes, label %compare
compare:
  %wanted.p = getelementptr i64, ptr %wanted, i64 %i
  %wanted.n = load i64, ptr %wanted.p
  %given.p = getelementptr i64, ptr %given, i64 %i
  %given.n = load i64, ptr %given.p
  %next = add i64 %i, 1
  %same = icmp eq i64 %wanted.n, %given.n
  br i1 %same, label %dim, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Stores a Python number of the leaf's kind: 1 and 2 a float in 4 and 8 bytes, 3 and 4 an int,
; 5 a bool.
define internal i1 @number_fits(ptr %leaf, ptr %x, ptr %class, ptr %to) {
entry:
  %kind = field %Leaf %leaf, number
  %float = field %Process @stax_process, float
  %int = field %Process @stax_process, int
  %bool = field %Process @stax_process, bool
  %is.float = icmp eq ptr %class, %float
  %is.int = icmp eq ptr %class, %int
  %is.bool = icmp eq ptr %class, %bool
  switch i64 %kind, label %no [
    i64 1, label %float32
    i64 2, label %float64
    i64 3, label %int32
    i64 4, label %int64
    i64 5, label %truth
  ]
float32:
  br i1 %is.float, label %float32.store, label %no
float32.store:
  %a = call double @PyFloat_AsDouble(ptr %x)
  %a.short = fptrunc double %a to float
  store float %a.short, ptr %to
  ret i1 true
float64:
  br i1 %is.float, label %float64.store, label %no
float64.store:
  %b = call double @PyFloat_AsDouble(ptr %x)
  store double %b, ptr %to
  ret i1 true
int32:
  br i1 %is.int, label %int.read, label %no
int64:
  br i1 %is.int, label %int.read, label %no
int.read:
  %over.p = alloca i32
  %c = call i64 @PyLong_AsLongLongAndOverflow(ptr %x, ptr %over.p)
  %over = load i32, ptr %over.p
  %in.64 = icmp eq i32 %over, 0
  %c.short = trunc i64 %c to i32
  %c.again = sext i32 %c.short to i64
  %in.32 = icmp eq i64 %c, %c.again
  %wide = icmp eq i64 %kind, 4
  %fits = select i1 %wide, i1 %in.64, i1 %in.32
  %fits.both = and i1 %fits, %in.64
  br i1 %fits.both, label %int.store, label %no
int.store:
  ; The lower half first, as every target here is little-endian.
  store i64 %c, ptr %to
  ret i1 true
truth:
  br i1 %is.bool, label %truth.store, label %no
truth.store:
  %true = field %Process @stax_process, true
  %d = icmp eq ptr %x, %true
  %d.byte = zext i1 %d to i8
  store i8 %d.byte, ptr %to
  ret i1 true
no:
  ret i1 false
}

; Whether the leaves are live arrays of the variant's types, or ndarrays or numbers that stand for
; them. On success %inputs holds the addresses of the elements, and %values the ndarrays they are in
; (null for numbers, which lie in %scratch).
define internal i1 @accept(ptr %table, ptr %v, ptr %leaves, ptr %values, ptr %inputs,
                           ptr %scratch) {
entry:
  %n = field %Variant %v, n_leaves
  %wanted = field %Variant %v, leaves
  %class = field %Entry %table, array_class
  %type.o = field %Entry %table, type_offset
  %value.o = field %Entry %table, value_offset
  %ndarray = field %Process @stax_process, array_type
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %array], [%next, %number.set]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %yes, label %look
look:
  %next = add i64 %i, 1
  %x.p = getelementptr ptr, ptr %leaves, i64 %i
  %x = load ptr, ptr %x.p
  %leaf = getelementptr %Leaf, ptr %wanted, i64 %i
  %held.p = getelementptr ptr, ptr %values, i64 %i
  %input.p = getelementptr ptr, ptr %inputs, i64 %i
  %x.class.p = getelementptr i8, ptr %x, i64 8
  %x.class = load ptr, ptr %x.class.p
  %is.array = icmp eq ptr %x.class, %class
  br i1 %is.array, label %typed, label %other
typed:
  %type.p = getelementptr i8, ptr %x, i64 %type.o
  %type = load ptr, ptr %type.p
  %right = load ptr, ptr %leaf
  %right.type = icmp eq ptr %type, %right
  br i1 %right.type, label %valued, label %no
valued:
  %value.p = getelementptr i8, ptr %x, i64 %value.o
  %value = load ptr, ptr %value.p
  %unset = icmp eq ptr %value, null
  br i1 %unset, label %no, label %present
present:
  %value.class.p = getelementptr i8, ptr %value, i64 8
  %value.class = load ptr, ptr %value.class.p
  %right.value = icmp eq ptr %value.class, %ndarray
  br i1 %right.value, label %array, label %no
other:
  %is.ndarray = icmp eq ptr %x.class, %ndarray
  br i1 %is.ndarray, label %ndarray.given, label %number
ndarray.given:
  %fits = call i1 @ndarray_fits(ptr %leaf, ptr %x)
  br i1 %fits, label %array, label %no
array:
  %held = phi ptr [%value, %present], [%x, %ndarray.given]
  store ptr %held, ptr %held.p
  %data.p = getelementptr i8, ptr %held, i64 16
  %data = load ptr, ptr %data.p
  store ptr %data, ptr %input.p
  br label %loop
number:
  %to = getelementptr i64, ptr %scratch, i64 %i
  %is.number = call i1 @number_fits(ptr %leaf, ptr %x, ptr %x.class, ptr %to)
  br i1 %is.number, label %number.set, label %no
number.set:
  store ptr null, ptr %held.p
  store ptr %to, ptr %input.p
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether no donated array is a leaf a second time. In turn: donated arrays are marked as deleted,
; leaves that are marked already are found, and the marks are taken away; no Python code runs
; meanwhile.
define internal i1 @given_once(ptr %table, ptr %v, ptr %leaves, ptr %values) {
entry:
  %n = field %Variant %v, n_leaves
  %donated = field %Variant %v, donated
  %class = field %Entry %table, array_class
  %value.o = field %Entry %table, value_offset
  %none = field %Process @stax_process, none
  %once.p = alloca i1
  store i1 true, ptr %once.p
  br label %turn
turn:
  %turns = phi i64 [0, %entry], [%turns.next, %turned]
  %over = icmp eq i64 %turns, 3
  br i1 %over, label %exit, label %loop
loop:
  %i = phi i64 [0, %turn], [%next, %skip]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %turned, label %look
turned:
  %turns.next = add i64 %turns, 1
  br label %turn
look:
  %next = add i64 %i, 1
  %x.p = getelementptr ptr, ptr %leaves, i64 %i
  %x = load ptr, ptr %x.p
  %x.class.p = getelementptr i8, ptr %x, i64 8
  %x.class = load ptr, ptr %x.class.p
  %is.array = icmp eq ptr %x.class, %class
  br i1 %is.array, label %array, label %skip
array:
  %slot = getelementptr i8, ptr %x, i64 %value.o
  %flag.p = getelementptr i8, ptr %donated, i64 %i
  %flag = load i8, ptr %flag.p
  %gives = icmp ne i8 %flag, 0
  switch i64 %turns, label %restore [
    i64 0, label %mark
    i64 1, label %check
  ]
mark:
  br i1 %gives, label %mark.look, label %skip
mark.look:
  %before = load ptr, ptr %slot
  store ptr %none, ptr %slot
  %marked = icmp eq ptr %before, %none
  br i1 %marked, label %twice, label %skip
check:
  br i1 %gives, label %skip, label %check.look
check.look:
  %seen = load ptr, ptr %slot
  %is.marked = icmp eq ptr %seen, %none
  br i1 %is.marked, label %twice, label %skip
twice:
  store i1 false, ptr %once.p
  br label %skip
restore:
  br i1 %gives, label %restore.set, label %skip
restore.set:
  %value.p = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value.p
  store ptr %value, ptr %slot
  br label %skip
skip:
  br label %loop
exit:
  %once = load i1, ptr %once.p
  ret i1 %once
}

; Whether nothing but an array refers to an ndarray, whose memory is its own or a recycled block.
define internal i1 @is_private(ptr %x) {
entry:
  ; The lower half of the count, as every target here is little-endian.
  %count = load i32, ptr %x
  %alone = icmp eq i32 %count, 1
  %base.p = getelementptr i8, ptr %x, i64 48
  %base = load ptr, ptr %base.p
  %no.base = icmp eq ptr %base, null
  br i1 %alone, label %look, label %no
look:
  br i1 %no.base, label %own, label %based
own:
  %flags.p = getelementptr i8, ptr %x, i64 64
  %flags = load i32, ptr %flags.p
  ; NPY_ARRAY_OWNDATA
  %owns = and i32 %flags, 4
  %owned = icmp ne i32 %owns, 0
  ret i1 %owned
based:
  %valid = call i32 @PyCapsule_IsValid(ptr %base, ptr @block_name)
  %is.block = icmp ne i32 %valid, 0
  ret i1 %is.block
no:
  ret i1 false
}

; Takes the ndarrays out of donated arrays that results are to be written over, and deletes those
; arrays: a program may end half way. Of other results %objects is null afterwards.
define internal void @take_over(ptr %table, ptr %v, ptr %leaves, ptr %values, ptr %objects) {
entry:
  %n = field %Variant %v, n_outputs
  %taken = field %Variant %v, taken
  %donated = field %Variant %v, donated
  %class = field %Entry %table, array_class
  %value.o = field %Entry %table, value_offset
  %none = field %Process @stax_process, none
  %nothing = icmp eq ptr %taken, null
  br i1 %nothing, label %exit, label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %fresh], [%next, %take]
  %end = icmp eq i64 %k, %n
  br i1 %end, label %exit, label %look
look:
  %next = add i64 %k, 1
  %object.p = getelementptr ptr, ptr %objects, i64 %k
  %i.p = getelementptr i64, ptr %taken, i64 %k
  %i = load i64, ptr %i.p
  %is.over = icmp sge i64 %i, 0
  %may = icmp ne ptr %donated, null
  %some = and i1 %is.over, %may
  br i1 %some, label %given, label %fresh
given:
  %flag.p = getelementptr i8, ptr %donated, i64 %i
  %flag = load i8, ptr %flag.p
  %gives = icmp ne i8 %flag, 0
  %x.p = getelementptr ptr, ptr %leaves, i64 %i
  %x = load ptr, ptr %x.p
  %x.class.p = getelementptr i8, ptr %x, i64 8
  %x.class = load ptr, ptr %x.class.p
  %is.array = icmp eq ptr %x.class, %class
  %candidate = and i1 %gives, %is.array
  br i1 %candidate, label %array, label %fresh
array:
  %value.p = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value.p
  %private = call i1 @is_private(ptr %value)
  br i1 %private, label %take, label %fresh
take:
  ; The reference of the array is that of the result now.
  %slot = getelementptr i8, ptr %x, i64 %value.o
  call void @Py_IncRef(ptr %none)
  store ptr %none, ptr %slot
  store ptr %value, ptr %object.p
  br label %loop
fresh:
  store ptr null, ptr %object.p
  br label %loop
exit:
  ret void
}

; Deletes the donated arrays, after their last use.
define internal void @delete_donated(ptr %table, ptr %v, ptr %leaves) {
entry:
  %n = field %Variant %v, n_leaves
  %donated = field %Variant %v, donated
  %class = field %Entry %table, array_class
  %value.o = field %Entry %table, value_offset
  %none = field %Process @stax_process, none
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %look], [%next, %delete]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %exit, label %look
look:
  %next = add i64 %i, 1
  %x.p = getelementptr ptr, ptr %leaves, i64 %i
  %x = load ptr, ptr %x.p
  %x.class.p = getelementptr i8, ptr %x, i64 8
  %x.class = load ptr, ptr %x.class.p
  %is.array = icmp eq ptr %x.class, %class
  %flag.p = getelementptr i8, ptr %donated, i64 %i
  %flag = load i8, ptr %flag.p
  %gives = icmp ne i8 %flag, 0
  %deletes = and i1 %is.array, %gives
  br i1 %deletes, label %delete, label %loop
delete:
  %slot = getelementptr i8, ptr %x, i64 %value.o
  %value = load ptr, ptr %slot
  call void @Py_IncRef(ptr %none)
  store ptr %none, ptr %slot
  call void @Py_DecRef(ptr %value)
  br label %loop
exit:
  ret void
}
"""
