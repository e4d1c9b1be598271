"""The LLVM IR that takes arguments apart and builds the result.

The one idea: a container is taken apart by the steps of a table (see call_form.py) on a stack, and
each object on the stack is held, because a step may run Python code. Containers are read through
functions of CPython's API, so nothing here depends on how they are laid out.
"""

TEXT = """
; kind, object, count, items
%Step = type { i64, ptr, i64, ptr }

declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_New()
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare void @PyErr_Clear()

define internal void @push(ptr %top.p, ptr %object) {
  %top = load ptr, ptr %top.p
  %slot = getelementptr ptr, ptr %top, i64 -1
  store ptr %object, ptr %slot
  store ptr %slot, ptr %top.p
  call void @Py_IncRef(ptr %object)
  ret void
}

; The arguments of a call, the first one on top. False if the keywords have other names.
define internal i1 @push_arguments(ptr %v, ptr %args, ptr %names, ptr %top.p) {
entry:
  %positional.p = getelementptr %Variant, ptr %v, i64 0, i32 12
  %positional = load i64, ptr %positional.p
  %n.names.p = getelementptr %Variant, ptr %v, i64 0, i32 13
  %n.names = load i64, ptr %n.names.p
  %wanted.names.p = getelementptr %Variant, ptr %v, i64 0, i32 14
  %wanted.names = load ptr, ptr %wanted.names.p
  br label %name
name:
  %j = phi i64 [%n.names, %entry], [%j.less, %found]
  %named = icmp eq i64 %j, 0
  br i1 %named, label %place, label %find
find:
  %j.less = sub i64 %j, 1
  %wanted.p = getelementptr ptr, ptr %wanted.names, i64 %j.less
  %wanted = load ptr, ptr %wanted.p
  br label %look
look:
  %k = phi i64 [0, %find], [%k.next, %other]
  %absent = icmp eq i64 %k, %n.names
  br i1 %absent, label %no, label %compare
compare:
  %given = call ptr @PyTuple_GetItem(ptr %names, i64 %k)
  %identical = icmp eq ptr %given, %wanted
  br i1 %identical, label %found, label %unlike
unlike:
  %order = call i32 @PyUnicode_Compare(ptr %given, ptr %wanted)
  %equal = icmp eq i32 %order, 0
  br i1 %equal, label %found, label %other
other:
  %k.next = add i64 %k, 1
  br label %look
found:
  %index = add i64 %positional, %k
  %value.p = getelementptr ptr, ptr %args, i64 %index
  %value = load ptr, ptr %value.p
  call void @push(ptr %top.p, ptr %value)
  br label %name
place:
  %i = phi i64 [%positional, %name], [%i.less, %given.place]
  %placed = icmp eq i64 %i, 0
  br i1 %placed, label %yes, label %given.place
given.place:
  %i.less = sub i64 %i, 1
  %arg.p = getelementptr ptr, ptr %args, i64 %i.less
  %arg = load ptr, ptr %arg.p
  call void @push(ptr %top.p, ptr %arg)
  br label %place
yes:
  ret i1 true
no:
  ret i1 false
}

; Takes the arguments apart. On success %leaves holds the leaves, each held once more.
define internal i1 @walk(ptr %v, ptr %args, ptr %names, ptr %leaves) {
entry:
  %size.p = getelementptr %Variant, ptr %v, i64 0, i32 17
  %size = load i64, ptr %size.p
  %stack = alloca ptr, i64 %size, align 16
  %bottom = getelementptr ptr, ptr %stack, i64 %size
  %top.p = alloca ptr
  store ptr %bottom, ptr %top.p
  %leaf.p = alloca ptr
  store ptr %leaves, ptr %leaf.p
  %x.p = alloca ptr
  %steps.p = getelementptr %Variant, ptr %v, i64 0, i32 15
  %steps = load ptr, ptr %steps.p
  %n.p = getelementptr %Variant, ptr %v, i64 0, i32 16
  %n = load i64, ptr %n.p
  %pushed = call i1 @push_arguments(ptr %v, ptr %args, ptr %names, ptr %top.p)
  br i1 %pushed, label %step, label %drop
step:
  %s = phi i64 [0, %entry], [%s.next, %leaf], [%s.next, %release]
  %s.next = add i64 %s, 1
  %done = icmp eq i64 %s, %n
  br i1 %done, label %exit, label %take
take:
  %step.p = getelementptr %Step, ptr %steps, i64 %s
  %kind = load i64, ptr %step.p
  %object.p = getelementptr %Step, ptr %step.p, i64 0, i32 1
  %object = load ptr, ptr %object.p
  %count.p = getelementptr %Step, ptr %step.p, i64 0, i32 2
  %count = load i64, ptr %count.p
  %items.p = getelementptr %Step, ptr %step.p, i64 0, i32 3
  %items = load ptr, ptr %items.p
  %top = load ptr, ptr %top.p
  %x = load ptr, ptr %top
  %below = getelementptr ptr, ptr %top, i64 1
  store ptr %below, ptr %top.p
  store ptr %x, ptr %x.p
  %x.class.p = getelementptr i8, ptr %x, i64 8
  %x.class = load ptr, ptr %x.class.p
  switch i64 %kind, label %wrong [
    i64 0, label %leaf
    i64 1, label %same
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
    i64 5, label %static
    i64 6, label %custom
  ]
leaf:
  %slot = load ptr, ptr %leaf.p
  store ptr %x, ptr %slot
  %slot.next = getelementptr ptr, ptr %slot, i64 1
  store ptr %slot.next, ptr %leaf.p
  br label %step

same:
  %is.object = icmp eq ptr %x, %object
  br i1 %is.object, label %release, label %wrong

tuple:
  %is.tuple = icmp eq ptr %x.class, %object
  br i1 %is.tuple, label %tuple.size, label %wrong
tuple.size:
  %t = load ptr, ptr %x.p
  %t.size = call i64 @PyTuple_Size(ptr %t)
  %t.fits = icmp eq i64 %t.size, %count
  br i1 %t.fits, label %tuple.item, label %wrong
tuple.item:
  %t.i = phi i64 [%count, %tuple.size], [%t.less, %tuple.push]
  %t.done = icmp eq i64 %t.i, 0
  br i1 %t.done, label %release, label %tuple.push
tuple.push:
  %t.less = sub i64 %t.i, 1
  %t.child = call ptr @PyTuple_GetItem(ptr %t, i64 %t.less)
  call void @push(ptr %top.p, ptr %t.child)
  br label %tuple.item

list:
  %is.list = icmp eq ptr %x.class, %object
  br i1 %is.list, label %list.size, label %wrong
list.size:
  %l.size = call i64 @PyList_Size(ptr %x)
  %l.fits = icmp eq i64 %l.size, %count
  br i1 %l.fits, label %list.item, label %wrong
list.item:
  %l.i = phi i64 [%count, %list.size], [%l.less, %list.push]
  %l.done = icmp eq i64 %l.i, 0
  br i1 %l.done, label %release, label %list.push
list.push:
  %l.less = sub i64 %l.i, 1
  %l.child = call ptr @PyList_GetItem(ptr %x, i64 %l.less)
  call void @push(ptr %top.p, ptr %l.child)
  br label %list.item

dict:
  %is.dict = icmp eq ptr %x.class, %object
  br i1 %is.dict, label %dict.size, label %wrong
dict.size:
  %d.size = call i64 @PyDict_Size(ptr %x)
  %d.fits = icmp eq i64 %d.size, %count
  br i1 %d.fits, label %dict.item, label %wrong
dict.item:
  %d.i = phi i64 [%count, %dict.size], [%d.less, %dict.push]
  %d.done = icmp eq i64 %d.i, 0
  br i1 %d.done, label %release, label %dict.look
dict.look:
  %d.less = sub i64 %d.i, 1
  %key.p = getelementptr ptr, ptr %items, i64 %d.less
  %key = load ptr, ptr %key.p
  %d.child = call ptr @PyDict_GetItemWithError(ptr %x, ptr %key)
  %no.key = icmp eq ptr %d.child, null
  br i1 %no.key, label %wrong, label %dict.push
dict.push:
  call void @push(ptr %top.p, ptr %d.child)
  br label %dict.item

static:
  %object.class.p = getelementptr i8, ptr %object, i64 8
  %object.class = load ptr, ptr %object.class.p
  %like.object = icmp eq ptr %x.class, %object.class
  br i1 %like.object, label %static.compare, label %wrong
static.compare:
  ; Py_EQ
  %is.equal = call i32 @PyObject_RichCompareBool(ptr %x, ptr %object, i32 2)
  %equal = icmp eq i32 %is.equal, 1
  br i1 %equal, label %release, label %wrong

custom:
  %class = load ptr, ptr %items
  %is.custom = icmp eq ptr %x.class, %class
  br i1 %is.custom, label %custom.call, label %wrong
custom.call:
  %children = call ptr @PyObject_Vectorcall(ptr %object, ptr %x.p, i64 1, ptr null)
  %raised = icmp eq ptr %children, null
  br i1 %raised, label %wrong, label %custom.children
custom.children:
  call void @Py_DecRef(ptr %x)
  store ptr %children, ptr %x.p
  %children.class.p = getelementptr i8, ptr %children, i64 8
  %children.class = load ptr, ptr %children.class.p
  %tuple.class.p = getelementptr %Process, ptr @stax_process, i64 0, i32 9
  %tuple.class = load ptr, ptr %tuple.class.p
  %are.tuple = icmp eq ptr %children.class, %tuple.class
  br i1 %are.tuple, label %tuple.size, label %wrong

release:
  %used = load ptr, ptr %x.p
  call void @Py_DecRef(ptr %used)
  br label %step
wrong:
  %unlike = load ptr, ptr %x.p
  call void @Py_DecRef(ptr %unlike)
  call void @PyErr_Clear()
  br label %drop
drop:
  %rest = load ptr, ptr %top.p
  %rest.i = ptrtoint ptr %rest to i64
  %bottom.i = ptrtoint ptr %bottom to i64
  %rest.bytes = sub i64 %bottom.i, %rest.i
  %n.rest = lshr i64 %rest.bytes, 3
  call void @drop(ptr %rest, i64 %n.rest)
  %end = load ptr, ptr %leaf.p
  %end.i = ptrtoint ptr %end to i64
  %leaves.i = ptrtoint ptr %leaves to i64
  %leaf.bytes = sub i64 %end.i, %leaves.i
  %n.leaves = lshr i64 %leaf.bytes, 3
  call void @drop(ptr %leaves, i64 %n.leaves)
  ret i1 false
exit:
  ret i1 true
}

; Puts the arrays into the structure of the result, whose steps stand in the order in which they are
; built; takes the arrays. Null with an error set.
define internal ptr @build(ptr %v, ptr %arrays) {
entry:
  %size.p = getelementptr %Variant, ptr %v, i64 0, i32 20
  %size = load i64, ptr %size.p
  %stack = alloca ptr, i64 %size, align 16
  %top.p = alloca ptr
  store ptr %stack, ptr %top.p
  %array.p = alloca ptr
  store ptr %arrays, ptr %array.p
  %steps.p = getelementptr %Variant, ptr %v, i64 0, i32 18
  %steps = load ptr, ptr %steps.p
  %n.p = getelementptr %Variant, ptr %v, i64 0, i32 19
  %n = load i64, ptr %n.p
  br label %step
step:
  %s = phi i64 [0, %entry], [%s.next, %built]
  %s.next = add i64 %s, 1
  %done = icmp eq i64 %s, %n
  br i1 %done, label %exit, label %take
take:
  %step.p = getelementptr %Step, ptr %steps, i64 %s
  %kind = load i64, ptr %step.p
  %object.p = getelementptr %Step, ptr %step.p, i64 0, i32 1
  %object = load ptr, ptr %object.p
  %count.p = getelementptr %Step, ptr %step.p, i64 0, i32 2
  %count = load i64, ptr %count.p
  %items.p = getelementptr %Step, ptr %step.p, i64 0, i32 3
  %items = load ptr, ptr %items.p
  %top = load ptr, ptr %top.p
  %before = sub i64 0, %count
  %children = getelementptr ptr, ptr %top, i64 %before
  switch i64 %kind, label %failed [
    i64 0, label %leaf
    i64 1, label %same
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
    i64 7, label %call
  ]
leaf:
  %slot = load ptr, ptr %array.p
  %array = load ptr, ptr %slot
  %slot.next = getelementptr ptr, ptr %slot, i64 1
  store ptr %slot.next, ptr %array.p
  br label %built
same:
  call void @Py_IncRef(ptr %object)
  br label %built

tuple:
  %t = call ptr @PyTuple_New(i64 %count)
  %no.tuple = icmp eq ptr %t, null
  br i1 %no.tuple, label %failed, label %tuple.item
tuple.item:
  %t.i = phi i64 [0, %tuple], [%t.next, %tuple.set]
  %t.done = icmp eq i64 %t.i, %count
  br i1 %t.done, label %built, label %tuple.set
tuple.set:
  %t.child.p = getelementptr ptr, ptr %children, i64 %t.i
  %t.child = load ptr, ptr %t.child.p
  %t.r = call i32 @PyTuple_SetItem(ptr %t, i64 %t.i, ptr %t.child)
  %t.next = add i64 %t.i, 1
  br label %tuple.item

list:
  %l = call ptr @PyList_New(i64 %count)
  %no.list = icmp eq ptr %l, null
  br i1 %no.list, label %failed, label %list.item
list.item:
  %l.i = phi i64 [0, %list], [%l.next, %list.set]
  %l.done = icmp eq i64 %l.i, %count
  br i1 %l.done, label %built, label %list.set
list.set:
  %l.child.p = getelementptr ptr, ptr %children, i64 %l.i
  %l.child = load ptr, ptr %l.child.p
  %l.r = call i32 @PyList_SetItem(ptr %l, i64 %l.i, ptr %l.child)
  %l.next = add i64 %l.i, 1
  br label %list.item

dict:
  %d = call ptr @PyDict_New()
  %no.dict = icmp eq ptr %d, null
  br i1 %no.dict, label %failed, label %dict.item
dict.item:
  %d.i = phi i64 [0, %dict], [%d.next, %dict.set]
  %d.done = icmp eq i64 %d.i, %count
  br i1 %d.done, label %dict.drop, label %dict.set
dict.set:
  %d.child.p = getelementptr ptr, ptr %children, i64 %d.i
  %d.child = load ptr, ptr %d.child.p
  %key.p = getelementptr ptr, ptr %items, i64 %d.i
  %key = load ptr, ptr %key.p
  %d.r = call i32 @PyDict_SetItem(ptr %d, ptr %key, ptr %d.child)
  %d.next = add i64 %d.i, 1
  %d.set = icmp eq i32 %d.r, 0
  br i1 %d.set, label %dict.item, label %dict.failed
dict.failed:
  call void @Py_DecRef(ptr %d)
  br label %failed
dict.drop:
  call void @drop(ptr %children, i64 %count)
  br label %built

call:
  %c = call ptr @PyObject_Vectorcall(ptr %object, ptr %children, i64 %count, ptr null)
  %raised = icmp eq ptr %c, null
  br i1 %raised, label %failed, label %call.drop
call.drop:
  call void @drop(ptr %children, i64 %count)
  br label %built

built:
  %made = phi ptr [%array, %leaf], [%object, %same], [%t, %tuple.item], [%l, %list.item],
                  [%d, %dict.drop], [%c, %call.drop]
  store ptr %made, ptr %children
  %top.next = getelementptr ptr, ptr %children, i64 1
  store ptr %top.next, ptr %top.p
  br label %step
failed:
  %top.i = ptrtoint ptr %top to i64
  %stack.i = ptrtoint ptr %stack to i64
  %stack.bytes = sub i64 %top.i, %stack.i
  %n.stack = lshr i64 %stack.bytes, 3
  call void @drop(ptr %stack, i64 %n.stack)
  %n.arrays.p = getelementptr %Variant, ptr %v, i64 0, i32 7
  %n.arrays = load i64, ptr %n.arrays.p
  %rest = load ptr, ptr %array.p
  %rest.i = ptrtoint ptr %rest to i64
  %arrays.end = getelementptr ptr, ptr %arrays, i64 %n.arrays
  %arrays.end.i = ptrtoint ptr %arrays.end to i64
  %rest.bytes = sub i64 %arrays.end.i, %rest.i
  %n.rest = lshr i64 %rest.bytes, 3
  call void @drop(ptr %rest, i64 %n.rest)
  ret ptr null
exit:
  %result = load ptr, ptr %stack
  ret ptr %result
}
"""
