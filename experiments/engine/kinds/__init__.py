"""Kinds of tables: the columns of each, the sentence above the table and the lines below it."""
